"""JobContext: what a handler sees of its job."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import ActionError, PayloadsDisabled
from ..model import ClientConfig, Job
from ..payloads.task_files import TaskFiles
from .actions import ActionFactory
from .datastore import DataStores

_encode = msgspec.msgpack.Encoder().encode
_decode_dict = msgspec.msgpack.Decoder(dict[str, Any]).decode


class JobContext(Struct, eq=False):
    """One job, as one run of a handler sees it.

    `state_history` may be changed: what is in it when the handler returns is stored with the decision; if
    the handler raises, it is dropped. Everything else is for reading. The dicts belong to this run alone.
    """

    _job: Job
    #: What handlers and workers have kept so far.
    state_history: dict[str, Any]
    client: ClientConfig
    data_stores: DataStores
    _aggregation_results: dict[str, dict[str, Any]] | None = None
    _actions: ActionFactory | None = None
    _files: Callable[[str], TaskFiles] | None = None
    _initial_data: dict[str, Any] | None = None

    @property
    def initial_data(self) -> dict[str, Any]:
        """The input of the job, copied for this run when it first asks: most handlers never do."""
        if self._initial_data is None:
            self._initial_data = _decode_dict(_encode(self._job.input))
        return self._initial_data

    @property
    def job_id(self) -> str:
        """The job."""
        return self._job.id

    @property
    def current_state(self) -> str:
        """The state whose handler runs."""
        return self._job.state

    @property
    def actions(self) -> ActionFactory:
        """The same object as the handler's second argument."""
        if self._actions is None:
            raise ActionError(f"state {self.current_state!r}: this context has no actions")
        return self._actions

    @property
    def aggregation_results(self) -> dict[str, dict[str, Any]]:
        """Task id → the whole result of that branch, in the order of dispatch. Only in an aggregator."""
        if self._aggregation_results is None:
            raise ActionError(
                f"state {self.current_state!r}: aggregation_results exist only in an aggregator's handler "
                "that runs after its parallel tasks"
            )
        return self._aggregation_results

    @property
    def task_files(self) -> TaskFiles:
        """The files of this job; a handler may also ask for them by an argument of this name."""
        if self._files is None:
            raise PayloadsDisabled
        return self._files(self.job_id)

    @property
    def blueprint(self) -> str:
        """The name of the blueprint that this job follows."""
        return self._job.blueprint

    @property
    def visit(self) -> int:
        """Counts the entries into states; (job_id, visit) names this one, also when the handler is run again."""
        return self._job.visit

    @property
    def attempt(self) -> int:
        """The number of this run of the handler in this visit, from 1."""
        return self._job.handler_failures + 1

    @property
    def parent_id(self) -> str | None:
        """The job that runs this one as its child."""
        return self._job.parent_id

    @property
    def webhook_url(self) -> str | None:
        """The URL of the job's webhook."""
        return self._job.webhook_url

    @property
    def search_attributes(self) -> dict[str, Any]:
        """What the job can be found by; changed with `actions.set_search_attributes`."""
        return self._job.search_attributes

    @property
    def tracing_context(self) -> dict[str, str]:
        """The W3C trace headers that came with the job."""
        return self._job.trace

    def __repr__(self) -> str:
        return f"JobContext(job_id={self.job_id!r}, current_state={self.current_state!r})"
