"""Data stores: what a blueprint lends to its handlers."""

import asyncio

import pytest

from regista.blueprint.datastore import AsyncDictStore, DataStores


async def test_a_store_keeps_replaces_and_forgets() -> None:
    store = AsyncDictStore({"a": 1})
    await store.set("b", 2)
    await store.set("a", 3)
    assert await store.get("a") == 3
    assert await store.get("missing") is None
    assert await store.get("missing", 7) == 7
    assert await store.keys() == ["a", "b"]
    assert "a" in store
    assert len(store) == 2
    assert await store.delete("a") is True
    assert await store.delete("a") is False
    assert await store.get("a") is None


def test_a_store_copies_what_it_is_given() -> None:
    initial = {"a": 1}
    store = AsyncDictStore(initial)
    initial["a"] = 2
    assert asyncio.run(store.get("a")) == 1


def test_a_plain_dict_gets_an_async_face() -> None:
    stores = DataStores({"cache": {"a": 1}})
    assert isinstance(stores.cache, AsyncDictStore)
    assert asyncio.run(stores.cache.get("a")) == 1


def test_any_other_object_reaches_the_handler_as_it_is() -> None:
    client, ready = object(), AsyncDictStore()
    stores = DataStores({"client": client, "ready": ready})
    assert stores.client is client
    assert stores.ready is ready


def test_an_unknown_name_lists_the_known_ones() -> None:
    stores = DataStores({"cache": {}, "api": object()})
    with pytest.raises(AttributeError, match="no data store named 'cash'; known: api, cache"):
        _ = stores.cash


def test_stores_cannot_be_slipped_in_by_assignment() -> None:
    with pytest.raises(AttributeError, match="add_data_store"):
        DataStores().cache = {}
