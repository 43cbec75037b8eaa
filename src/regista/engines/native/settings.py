"""Settings of the native engine: what the executor, the submissions and the signals share."""

from msgspec import Struct

from ...machine.step import MachineSettings


class ExecutorSettings(Struct, frozen=True, kw_only=True):
    """Settings of this instance's engine."""

    #: The id of this instance, the owner of its leases.
    instance: str
    lease_s: float = 30.0
    #: How long a result waits for the handler after it before it is committed alone (FENCES 5).
    sticky_s: float = 0.02
    #: Handlers that may be suspended at once.
    max_suspended: int = 1000
    machine: MachineSettings = MachineSettings()
