"""Data stores: what a blueprint lends to its handlers. They live in this process and serve all its jobs."""

from collections.abc import Mapping
from typing import Any

from ..errors import BlueprintInvalid


class AsyncDictStore:
    """A dict with an async face, so that it can be swapped for a real cache later.

    It copies what it is given. Nothing is persisted and nothing is shared with other processes.
    """

    __slots__ = ("_items",)

    def __init__(self, initial: Mapping[Any, Any] | None = None) -> None:
        self._items: dict[Any, Any] = dict(initial or {})

    async def get(self, key: Any, default: Any = None) -> Any:
        """The value of `key`, or `default`."""
        return self._items.get(key, default)

    async def set(self, key: Any, value: Any) -> None:
        """Keep `value` under `key`; what was there is replaced."""
        self._items[key] = value

    async def delete(self, key: Any) -> bool:
        """Forget `key`; False if it was not there."""
        return self._items.pop(key, self) is not self

    async def keys(self) -> list[Any]:
        """The keys of this moment, in the order of their arrival."""
        return list(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"AsyncDictStore({len(self)} keys)"


class DataStores:
    """The stores of one blueprint, by attribute: `context.data_stores.cache`.

    A plain dict becomes an AsyncDictStore; anything else (a Redis client, an API client) reaches the
    handler as it is. It has no methods of its own, so any name is free for a store.
    """

    # The stores live in the instance's own dict: reading one costs what reading an attribute costs.
    def __init__(self, stores: Mapping[str, Any] | None = None) -> None:
        for name, store in (stores or {}).items():
            self.__dict__[name] = AsyncDictStore(store) if type(store) is dict else store

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(sorted(self.__dict__)) or "none"
        raise AttributeError(f"no data store named {name!r}; known: {known}", name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"data stores are added with blueprint.add_data_store({name!r}, ...)")

    def __contains__(self, name: object) -> bool:
        return name in self.__dict__

    def __len__(self) -> int:
        return len(self.__dict__)

    def __repr__(self) -> str:
        return f"DataStores({', '.join(sorted(self.__dict__))})"


def with_store(blueprint: str, stores: DataStores, name: object, store: Any) -> DataStores:
    """The stores plus one more. A name is a public Python identifier and is given once."""
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise BlueprintInvalid(
            blueprint, [f"data store: expected a Python name without leading underscore, got {name!r}"]
        )
    if name in stores:
        raise BlueprintInvalid(blueprint, [f"data store {name!r} is there already"])
    return DataStores({**vars(stores), name: store})
