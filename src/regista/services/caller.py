"""Who calls a service, and in which role."""

from enum import StrEnum

from msgspec import Struct

from ..errors import OperatorsOnly
from ..model import ClientConfig


class Role(StrEnum):
    """What a caller may do. The transport authenticates; the services decide by role."""

    #: Its own jobs, schedules' jobs, deliveries and files.
    CLIENT = "client"
    #: Everything of every client.
    OPERATOR = "operator"
    #: One decision of one job, with the token that was made for it.
    APPROVAL_LINK = "approval_link"
    #: A worker that exchanges credentials.
    WORKER = "worker"
    #: The program that embeds the orchestrator: everything, and nothing is recorded about it.
    PROGRAM = "program"


#: Roles that see what belongs to other clients.
_PRIVILEGED = frozenset({Role.OPERATOR, Role.PROGRAM})


class Caller(Struct, frozen=True, gc=False):
    """An authenticated caller. Of a worker, `client.name` is the worker's id."""

    client: ClientConfig
    role: Role
    #: The network address that the request came from; empty inside this process.
    address: str = ""

    @property
    def name(self) -> str:
        """The client's name, or the worker's id."""
        return self.client.name

    @property
    def actor(self) -> str:
        """The caller in events and audit records: `client:NAME`, `operator:NAME`, `worker:ID` or `approval_link`."""
        return f"{self.role.value}:{self.name}" if self.name else self.role.value

    @property
    def is_privileged(self) -> bool:
        """The caller may see and change what belongs to any client."""
        return self.role in _PRIVILEGED

    @property
    def visible_client(self) -> str | None:
        """The only client whose records the caller may see; None: all clients."""
        return None if self.is_privileged else self.name

    def may_see(self, client: str) -> bool:
        """The caller may see what belongs to this client."""
        return self.is_privileged or (self.role is Role.CLIENT and self.name == client)

    def require_operator(self, action: str) -> None:
        """Raise OperatorsOnly unless the caller may do this; `action` completes "only an operator may …"."""
        if not self.is_privileged:
            raise OperatorsOnly(action)


def client_caller(client: ClientConfig, address: str = "") -> Caller:
    """The caller that a client's token stands for."""
    return Caller(client, Role.OPERATOR if client.operator else Role.CLIENT, address)


def worker_caller(worker_id: str, address: str = "") -> Caller:
    """A worker that exchanges credentials."""
    return Caller(ClientConfig(name=worker_id), Role.WORKER, address)


def approval_link_caller(address: str = "") -> Caller:
    """A person who decides with the token of one approval."""
    return Caller(ClientConfig(), Role.APPROVAL_LINK, address)


def program_caller(client: str = "") -> Caller:
    """The program that embeds the orchestrator; `client` is the client that it acts for."""
    return Caller(ClientConfig(name=client), Role.PROGRAM)
