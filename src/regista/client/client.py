"""Client: an orchestrator over HTTP, as typed calls."""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote

import msgspec

from ..config import Connection
from ..errors import JobNotFound, RegistaError, Unreachable
from ..history.timeline import Timeline
from ..model import Event, EventType, JobStatus
from ..schemas.jobs import JobObject, Progress, Waited
from .bodies import members, new_key, wish
from .errors import error_from_problem
from .files import Files
from .schedules import Schedules
from .transport import FIRST_CONTACT_S, Transport, decode
from .waiting import merged, windows

#: Options of `submit` whose member has another name.
_MEMBERS = {"dispatch_timeout_s": "dispatch_timeout", "result_timeout_s": "result_timeout"}

#: How long one request waits for a job; a proxy would cut much longer ones.
_WAIT_S = 25.0
#: How long an answer waits for more jobs to end, when more than one is waited for, and for each of many: every answer
#: asks for all the others anew. It never waits once the last of them has ended.
_LINGER_S, _LINGER_EACH_S = 0.01, 0.0002
#: How many submissions go in one request.
_BATCH = 1000
_SETTLED = frozenset(status.value for status in JobStatus if status.settled)


class _Created(msgspec.Struct, frozen=True):
    """The answer to a batch that has nothing wrong with it."""

    items: list[JobObject]


class Client:
    """Talks to one orchestrator. Everything is read from the environment unless it is given.

    ```python
    async with Client() as client:
        job = await client.run("greet", {"name": "Ada"})
    ```

    A refusal raises the exception that the orchestrator raised (`JobNotFound`, `IdempotencyConflict`, …), or
    `ApiError`. Calls that are safe to repeat are repeated while the orchestrator restarts, for at most
    `REGISTA_TIMEOUT_SECONDS`; then it is `Unreachable`. One that has never been there is waited for for
    `first_contact_s` only: enough for one that just starts, and no long wait for a wrong address. A submission always carries an idempotency key, so
    that it is one of them. Belongs to the event loop of its first call.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        connection: Connection | None = None,
        first_contact_s: float = FIRST_CONTACT_S,
        on_wait: Callable[[str, float], None] | None = None,
    ) -> None:
        """`on_wait` is called when an answer is waited for: why, and for how many seconds more at most."""
        if connection is None or url is not None or token is not None:
            connection = Connection.from_env(url=url, token=token)
        self._transport = Transport(connection, first_contact_s, on_wait)
        self.url = self._transport.url
        #: What is started when; for operators.
        self.schedules = Schedules(self._transport)
        #: Files and large values of jobs.
        self.files = Files(self._transport)

    @property
    def server_time(self) -> str | None:
        """The orchestrator's clock (HTTP's `Date`) when it last answered."""
        return self._transport.server_time

    async def close(self) -> None:
        """Give the connections back. Twice is fine."""
        await self._transport.close()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- starting jobs ---------------------------------------------------------------------------

    async def submit(
        self,
        blueprint: str,
        input: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        priority: float | None = None,
        dispatch_timeout_s: float | None = None,
        result_timeout_s: float | None = None,
        webhook_url: str | None = None,
        search_attributes: Mapping[str, Any] | None = None,
    ) -> JobObject:
        """Start a job. It is durable when this returns; the same key returns the same job."""
        body = wish(
            blueprint,
            input,
            idempotency_key=idempotency_key,
            priority=priority,
            dispatch_timeout=dispatch_timeout_s,
            result_timeout=result_timeout_s,
            webhook_url=webhook_url,
            search_attributes=search_attributes,
        )
        return await self._job("POST", "/api/v1/jobs", body)

    async def submit_many(self, wishes: Sequence[Mapping[str, Any]]) -> list[JobObject | RegistaError]:
        """Start several jobs; each is answered in its own place, by the job or by why there is none.

        A wish is what `POST /api/v1/jobs` takes: `{"blueprint", "input"?, "idempotency_key"?, …}`.
        """
        answers: list[JobObject | RegistaError] = []
        keyed = [{"idempotency_key": new_key(), **each} for each in wishes]
        for start in range(0, len(keyed), _BATCH):
            body = {"jobs": keyed[start : start + _BATCH]}
            answers += _each(await self._transport.call("POST", "/api/v1/jobs:batch", body))
        return answers

    async def run(
        self,
        /,
        blueprint: str,
        input: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        **options: Any,
    ) -> JobObject:
        """Submit (with the options of `submit`) and wait until the job has settled."""
        left = _WAIT_S if timeout_s is None else max(0.0, min(_WAIT_S, timeout_s))
        body = wish(blueprint, input, **{_MEMBERS.get(name, name): value for name, value in options.items()})
        began = time.monotonic()
        # One request does for most jobs: the answer to the submission waits for the end.
        job = await self._job("POST", _waiting("/api/v1/jobs", left), body, server_wait_s=left)
        if settled(job):
            return job
        return await self.wait(job.id, None if timeout_s is None else timeout_s - time.monotonic() + began)

    async def fork(self, job_id: str, input: Mapping[str, Any] | None = None) -> JobObject:
        """Start a new job with the blueprint and input of this one; members of `input` take the place of old ones."""
        return await self._job("POST", _path(job_id, "/fork"), members("input", input), idempotent=False)

    # -- looking at jobs -------------------------------------------------------------------------

    async def get(self, job_id: str) -> JobObject:
        """The job, or JobNotFound."""
        return await self._job("GET", _path(job_id))

    async def wait(self, job_id: str, timeout_s: float | None = None) -> JobObject:
        """The job once it has settled, or as it is when the time is up."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = _WAIT_S if end is None else max(0.0, min(_WAIT_S, end - time.monotonic()))
            job = await self._job("GET", _waiting(_path(job_id), left), server_wait_s=left)
            if settled(job) or (end is not None and time.monotonic() >= end):
                return job

    async def wait_many(
        self, job_ids: Sequence[str], timeout_s: float | None = None, attempts: bool = False
    ) -> AsyncIterator[JobObject]:
        """The jobs as they settle, each once. Ends when all have, or when the time is up.

        As in a list, `attempts` and `bill` stay empty, unless you ask for them.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        async for jobs in merged([self._window(ids, end, attempts) for ids in windows(job_ids)]):
            for job in jobs:
                yield job

    async def _window(
        self, job_ids: Sequence[str], end: float | None, attempts: bool
    ) -> AsyncIterator[Sequence[JobObject]]:
        """Answer by answer: what passes through here one by one costs more than what is done with it."""
        pending = list(job_ids)
        while pending:
            left = _WAIT_S if end is None else max(0.0, min(_WAIT_S, end - time.monotonic()))
            linger = max(_LINGER_S, _LINGER_EACH_S * len(pending)) if len(pending) > 1 else 0.0
            body = {"ids": pending, "timeout": left, "linger": linger, "attempts": attempts}
            answer = await self._transport.call("POST", "/api/v1/jobs:wait", body, server_wait_s=left)
            waited: Waited = decode(answer, Waited)
            yield waited.items
            if waited.unknown:
                raise JobNotFound(waited.unknown[0])
            pending = waited.pending
            if end is not None and time.monotonic() >= end:
                return

    async def jobs(
        self,
        *,
        query: str | None = None,
        status: str | None = None,
        blueprint: str | None = None,
        page: int = 100,
    ) -> AsyncIterator[JobObject]:
        """Every job that fits, newest first or as the query asks; the next page is asked for when it is needed."""
        params = {"limit": str(page)} | given(query=query, status=status, blueprint=blueprint)
        async for job in self._transport.pages("/api/v1/jobs", params, JobObject):
            yield job

    async def count(
        self,
        query: str | None = None,
        by: str | None = None,
        *,
        status: str | None = None,
        blueprint: str | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """How many jobs fit, in all and by the values of `by`, and how long those that have ended took."""
        params = given(query=query, group_by=by, status=status, blueprint=blueprint)
        params |= {} if limit is None else {"limit": str(limit)}
        answer = await self._transport.call("GET", "/api/v1/jobs:count", params=params)
        tally: dict[str, Any] = decode(answer, dict[str, Any])
        return tally

    async def export(
        self, query: str | None = None, *, status: str | None = None, blueprint: str | None = None
    ) -> AsyncIterator[bytes]:
        """All jobs that fit with their events, as lines of JSON; however many there are, few are in memory.

        The last line counts them. Without it the answer was cut, and this raises.
        """
        params = given(query=query, status=status, blueprint=blueprint)
        last = b""
        async for line in self._transport.lines("/api/v1/jobs:export", params):
            yield line
            last = line
        if not last.startswith(b'{"end":'):
            raise Unreachable(self.url, "the export was cut before its end; take it again")

    async def history(self, job_id: str) -> list[Event]:
        """Everything that happened to the job so far."""
        return [event async for event in self._transport.pages(_path(job_id, "/history"), {}, Event)]

    async def events(self, job_id: str | None = None, after: str = "") -> AsyncIterator[Event | Progress]:
        """What happens, as it happens: to one job until its end, or to all jobs of the client for ever.

        Of one job, what has happened before comes first; of all, only with `after="0"`. A cut connection is
        made again, and goes on where it was cut. In between, `Progress` tells how far tasks are; that is
        not kept anywhere.
        """
        path = "/api/v1/events" if job_id is None else _path(job_id, "/events")
        async for message in self._transport.messages(path, after):
            if message.kind == "closed":
                continue  # we read too slowly; the stream ends, and is opened again where it ended
            if message.kind == "progress":
                yield msgspec.json.decode(message.data, type=Progress)
                continue
            event = msgspec.json.decode(message.data, type=Event)
            yield event
            if job_id is not None and event.type is EventType.JOB_FINISHED:
                return

    async def timeline(self, job_id: str) -> Timeline:
        """The job's life as spans of time: states, tasks, attempts, and every wait with its reason."""
        told: Timeline = decode(await self._transport.call("GET", _path(job_id, "/timeline")), Timeline)
        return told

    async def explain(self, job_id: str) -> dict[str, Any]:
        """Why the job does not go on: every blocking condition, and what would unblock it."""
        return await self._document("GET", _path(job_id, "/explain"))

    # -- deciding about jobs ---------------------------------------------------------------------

    async def cancel(self, job_id: str, reason: str = "") -> JobObject:
        """Ask for a stop; JobAlreadyTerminal when it is too late."""
        return await self._job("POST", _path(job_id, "/cancel"), {"reason": reason}, idempotent=False)

    async def approve(
        self,
        job_id: str,
        decision: str = "approve",
        comment: str = "",
        data: Mapping[str, Any] | None = None,
    ) -> JobObject:
        """Pass on a person's decision. Twice the same is fine; another one is ApprovalConflict."""
        body = {"decision": decision, "comment": comment} | members("data", data)
        return await self._job("POST", _path(job_id, "/approval"), body)

    async def release(self, job_id: str, data: Mapping[str, Any] | None = None) -> JobObject:
        """Let a quarantined job try again, with `data` merged into its own first; else NotQuarantined."""
        return await self._job("POST", _path(job_id, "/release"), members("data", data), idempotent=False)

    async def retry(self, job_id: str, data: Mapping[str, Any] | None = None) -> JobObject:
        """`release`, by its other name."""
        return await self.release(job_id, data)

    async def fail(self, job_id: str, reason: str = "") -> JobObject:
        """Give a quarantined job up; else NotQuarantined."""
        return await self._job("POST", _path(job_id, "/fail"), {"reason": reason}, idempotent=False)

    # -- the house -------------------------------------------------------------------------------

    async def blueprints(self) -> list[dict[str, Any]]:
        """What can be run."""
        return await self._every("/api/v1/blueprints")

    async def graph(self, blueprint: str, format: str = "dot") -> bytes:
        """The states of a blueprint, drawn: as text for `dot`, as a picture for `svg` and `png`."""
        path = f"/api/v1/blueprints/{quote(blueprint, safe='')}/graph"
        return await self._transport.call("GET", path, params={"format": format})

    async def workers(self) -> list[dict[str, Any]]:
        """Who performs."""
        return await self._every("/api/v1/workers")

    async def drain(self, worker_id: str) -> dict[str, Any]:
        """Let a worker finish what it has and take nothing new."""
        return await self._document("POST", f"/api/v1/workers/{quote(worker_id, safe='')}/drain", {})

    async def undrain(self, worker_id: str) -> dict[str, Any]:
        """Let a worker that was drained take tasks again."""
        path = f"/api/v1/workers/{quote(worker_id, safe='')}/drain"
        return await self._document("POST", path, {"on": False})

    async def one_time_password(self, worker_id: str | None = None) -> dict[str, Any]:
        """REGISTA_TOKEN for a worker that is about to start: good once, for minutes. For operators."""
        return await self._document("POST", "/api/v1/tokens/otp", {"worker_id": worker_id})

    async def revoke(self, worker_id: str) -> dict[str, Any]:
        """End the short-lived tokens and the one-time passwords of a worker. For operators."""
        return await self._document("POST", "/api/v1/tokens/revoke", {"worker_id": worker_id})

    async def queues(self) -> list[dict[str, Any]]:
        """What waits and what runs, by queue."""
        return await self._every("/api/v1/queues")

    async def webhooks(self, state: str = "dead") -> list[dict[str, Any]]:
        """Words about jobs that were given up (`dead`), or are still tried (`pending`)."""
        return [
            item async for item in self._transport.pages("/api/v1/webhooks", {"state": state}, dict[str, Any])
        ]

    async def redeliver(self, delivery_id: str) -> dict[str, Any]:
        """Send one of them again, now."""
        return await self._document("POST", f"/api/v1/webhooks/{quote(delivery_id, safe='')}/redeliver", {})

    async def discard(self, delivery_id: str) -> dict[str, Any]:
        """Forget one of them."""
        return await self._document("POST", f"/api/v1/webhooks/{quote(delivery_id, safe='')}/discard", {})

    async def webhook_secret(self) -> dict[str, Any]:
        """What deliveries to this client are signed with."""
        return await self._document("GET", "/api/v1/webhooks/secret")

    async def audit(
        self, *, actor: str = "", action: str = "", target: str = "", page: int = 100
    ) -> AsyncIterator[dict[str, Any]]:
        """Who did what, newest first. For operators."""
        asked = {"actor": actor, "action": action, "target": target, "limit": str(page)}
        params = {name: value for name, value in asked.items() if value}
        async for record in self._transport.pages("/api/v1/audit", params, dict[str, Any]):
            yield record

    async def me(self) -> dict[str, Any]:
        """As whom we are let in, and how much of the quota is used: name, plan, operator, quota."""
        return await self._document("GET", "/api/v1/me")

    async def chores(self) -> dict[str, Any]:
        """How the chores of the instance that answers have fared. For operators."""
        return await self._document("GET", "/api/v1/chores")

    async def status(self) -> dict[str, Any]:
        """Is somebody there? Needs no token."""
        return await self._document("GET", "/_public/status")

    # -- how it is asked -------------------------------------------------------------------------

    async def _job(self, method: str, path: str, body: object = None, **how: Any) -> JobObject:
        job: JobObject = decode(await self._transport.call(method, path, body, **how), JobObject)
        return job

    async def _document(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        document: dict[str, Any] = decode(await self._transport.call(method, path, body), dict[str, Any])
        return document

    async def _every(self, path: str) -> list[dict[str, Any]]:
        return [item async for item in self._transport.pages(path, {}, dict[str, Any])]


def given(**params: str | None) -> dict[str, str]:
    """The parameters that have a value."""
    return {name: value for name, value in params.items() if value}


def settled(job: JobObject) -> bool:
    """Nothing happens to it by itself any more: it has ended, or waits for a person to mend it."""
    return job.status in _SETTLED


def _each(answer: bytes) -> Sequence[JobObject | RegistaError]:
    """Each job of a batch, or why there is none. Mostly all are there, and are read in one go."""
    try:
        return msgspec.json.decode(answer, type=_Created).items
    except msgspec.ValidationError:
        items: list[dict[str, Any]] = decode(answer, dict[str, list[dict[str, Any]]])["items"]
        return [
            msgspec.convert(item, JobObject) if "id" in item else error_from_problem(item) for item in items
        ]


def _path(job_id: str, below: str = "") -> str:
    return f"/api/v1/jobs/{quote(job_id, safe='')}{below}"


def _waiting(path: str, wait_s: float) -> str:
    """The path, for an answer that may wait so long for the end of the job."""
    return f"{path}?wait={wait_s:.3f}" if wait_s else path
