"""HintRouter: passes the store's hints to the parts that act on them.

Hints may be lost. Every effect follows from stored state, so a crash between a commit and its effect loses nothing:

| effect                        | follows from                        | recovered by                               |
|-------------------------------|-------------------------------------|--------------------------------------------|
| run the next handler          | a runnable job (`Job.runnable`)     | ready queue; lapsed lease; start-up        |
| send a task to a worker       | an attempt that is `offered`        | heartbeat (undelivered), lapsed lease      |
| offer a waiting task          | an attempt that is `queued`         | task queues; every free slot; start-up     |
| act on a timer or a timeout   | `Job.deadline`, `Task.deadline`     | `due` never pops; the Watcher asks again   |
| start a child job             | its row, created in the parent's write | ready queue                             |
| notify the parent, cancel down | a stored message                   | `messages`; removed by the acting commit   |
| tell a worker to stop         | `Task.cancel_requested`             | repeated at every heartbeat; deadline      |
| free a worker's slot          | the attempts that it holds          | counted from them, never stored apart      |
| record history                | outbox entries                      | the cursor in the history database         |
| answer a submitter or worker  | the job; its accepted attempts      | they ask again and get the same answer     |
| wake callers that wait        | the job's status                    | every caller reads again every 2 s         |
| send a webhook                | a record of the collection `webhooks` | its due time; a lease that lapses        |
| remove an ended job's files   | the job's status; its folder        | a scan of all folders, every minute        |
| notify live readers           | outbox entries, then history        | a gap in seq; a read every 2 s             |
"""

from collections.abc import Callable, Mapping, Sequence

from ...storage.base import Hint, HintKind

HintHandler = Callable[[Hint], None]


class HintRouter:
    """Calls the handlers of a hint's kind, in their order."""

    def __init__(self, instance: str, *tables: Mapping[HintKind, Sequence[HintHandler]]) -> None:
        """Handlers of the same kind in several tables are called one after the other."""
        self._instance = instance
        self.handlers: dict[HintKind, tuple[HintHandler, ...]] = {}
        for table in tables:
            for kind, handlers in table.items():
                self.handlers[kind] = (*self.handlers.get(kind, ()), *handlers)

    def dispatch(self, hint: Hint) -> None:
        """Called by the store after each flush, and for hints of other instances."""
        if hint.to and hint.to != self._instance:
            return
        for handler in self.handlers.get(hint.kind, ()):
            handler(hint)
