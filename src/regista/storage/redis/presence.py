"""Presence: what the store remembers of us tells whether it is still the same, and whether our name is ours alone."""

import logging

from ...clock import Clock

log = logging.getLogger("regista.storage")


class Presence:
    """Compares what stood in the store before each word of ours with what we had left there.

    Nothing can be mended from here, and nothing is refused: an operator is told, once for each event.
    """

    def __init__(self, process: str, clock: Clock) -> None:
        #: Tells this process from others under the same name.
        self.process = process
        self._clock = clock
        #: Instance → until when our last word there counts, on the clock of this process.
        self._said: dict[str, float] = {}
        self._rivals: set[str] = set()

    def learn(self, instance: str, before: str, lease_s: float) -> None:
        """We have said that `instance` is there for `lease_s`; `before` names the process that had said so."""
        now = self._clock.elapsed()
        expected = now < self._said.get(instance, now)
        # A little less than the lease: it began when the store heard us, and ends there.
        self._said[instance] = now + 0.8 * lease_s
        if expected and not before:
            log.error(
                "the store has forgotten us: it was emptied, or restored, or another one answers at its address; "
                "jobs that it acknowledged before may be gone, and are not told apart from jobs that never were",
                extra={"action": "storage_emptied"},
            )
        elif expected and before != self.process and instance not in self._rivals:
            self._rivals.add(instance)
            log.warning(
                "another orchestrator runs under our name %r: give each its own INSTANCE_ID, or each undoes "
                "what the other says about its jobs and workers",
                instance,
                extra={"action": "instance_id_shared"},
            )
