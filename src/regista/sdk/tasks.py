"""Worker: the functions that do the work, by skill, and what the worker says about itself."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from ..serialization import to_storable_dict
from .context import TaskContext
from .params import build_call_plan

__all__ = ["Function", "Skill", "TaskContext", "Worker"]

Function = TypeVar("Function", bound=Callable[..., Any])


class Skill(Struct, frozen=True):
    """A function, and how to call it."""

    name: str
    #: (params, context) → what the function returns; wrong params raise InvalidInputError.
    call: Callable[[dict[str, Any], Any], Any]
    is_async: bool
    wants_context: bool
    #: How many of it may run at once here; None is bounded by the worker alone.
    concurrency: int | None = None
    #: The queue that it is taken from; None is whatever the worker serves.
    queue: str | None = None
    #: JSON schema of its params, where the function says what it wants.
    schema: dict[str, Any] | None = None


class Worker:
    """Collects task functions. Connect it to an orchestrator, in this process or in another.

    A function takes `params` (a dict, or a record if it is annotated as one) and, if it has a second
    parameter, a `TaskContext`; or the params by name: `def resize(width: int, path: str)`. It returns
    its data; or a dict of `status`, `data` and `error` to say more; or raises `TransientError`,
    `PermanentError` or `InvalidInputError`. Any other exception counts as transient. Plain functions
    run in threads.
    """

    def __init__(
        self,
        name: str = "local",
        *,
        concurrency: int = 10,
        queues: Iterable[str] | None = None,
        type: str = "",
        labels: Mapping[str, Any] | None = None,
        taints: Iterable[str] = (),
        zone: str = "",
        cost_per_second: float = 0.0,
        cost_per_skill: Mapping[str, float] | None = None,
        software: Mapping[str, str] | None = None,
        models: Mapping[str, str] | Iterable[str] = (),
        hot: Iterable[str] = (),
    ) -> None:
        """What is said here is told to the orchestrator at registration.

        `concurrency` bounds the tasks at once; `queues` (None: any) are those that it takes tasks from;
        `models` are installed, `hot` ones are loaded; `taints` keep away what does not tolerate them.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency: expected at least 1, got {concurrency}")
        self.name = name
        self.concurrency = concurrency
        self._queues = tuple(queues) if queues is not None else None
        self.type = type
        self.labels = _plain(labels, "labels")
        self.taints = tuple(taints)
        self.zone = zone
        self.cost_per_second = cost_per_second
        self.cost_per_skill = _plain(cost_per_skill, "cost_per_skill")
        self.software = _plain(software, "software")
        self.models = _plain(models if isinstance(models, Mapping) else dict.fromkeys(models, ""), "models")
        self.skills: dict[str, Skill] = {}
        self._hot: dict[str, None] = {}
        self.add_hot(*hot)

    def task(
        self, name: str, *, queue: str | None = None, concurrency: int | None = None
    ) -> Callable[[Function], Function]:
        """Register a function as the skill `name`.

        `concurrency` bounds how many of it run here at once. `queue` is where its tasks wait, when the
        blueprint dispatches them with that queue; a worker with such a task serves the queues that its
        tasks name, and the others' own ones.
        """
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"task {name!r}: concurrency: expected at least 1, got {concurrency}")

        def register(func: Function) -> Function:
            if name in self.skills:
                raise ValueError(f"worker {self.name!r} already has a task {name!r}")
            calling = build_call_plan(name, func)
            self.skills[name] = Skill(
                name=name,
                call=calling.call,
                is_async=inspect.iscoroutinefunction(func),
                wants_context=calling.wants_context,
                concurrency=concurrency,
                queue=queue,
                schema=calling.schema,
            )
            return func

        return register

    @property
    def queues(self) -> tuple[str, ...] | None:
        """The queues that it takes tasks from; None is any."""
        named = [skill.queue for skill in self.skills.values() if skill.queue is not None]
        if self._queues is None and not named:
            return None
        if self._queues is not None:
            return tuple(dict.fromkeys([*self._queues, *named]))
        # A task that names no queue waits in the one of its own name.
        return tuple(dict.fromkeys(skill.queue or skill.name for skill in self.skills.values()))

    @property
    def limits(self) -> dict[str, int]:
        """Skill → how many of it at once."""
        return {s.name: s.concurrency for s in self.skills.values() if s.concurrency is not None}

    @property
    def schemas(self) -> dict[str, Any]:
        """Skill → JSON schema of its params."""
        return {s.name: s.schema for s in self.skills.values() if s.schema is not None}

    # -- what is loaded --------------------------------------------------------------------------

    @property
    def hot(self) -> tuple[str, ...]:
        """Skills or models that are loaded and warm right now, oldest first."""
        return tuple(self._hot)

    def add_hot(self, *names: str) -> None:
        """These are warm now; the orchestrator hears it with the next beat, and prefers us for them."""
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"expected names of skills or models, got {names!r}")
        # A new dict each time: a function in a thread may call this while the loop reads.
        self._hot = {**self._hot, **dict.fromkeys(names)}

    def remove_hot(self, *names: str) -> None:
        """These are no longer loaded. Unknown ones are fine."""
        self._hot = {name: None for name in self._hot if name not in names}


def _plain(given: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """A copy; NotSerializable where it is made, and not at each try to register, when no orchestrator could be told of it."""
    return to_storable_dict(dict(given or {}), f"{what} of a worker")
