"""DeclaredState: what the decorators have said about one state so far."""

from msgspec import Struct, field

from .graph import FAILED_STATE
from .handlers import Handler

#: How a job can end in an end state.
OUTCOMES = ("finished", "failed")


class DeclaredState(Struct):
    """One state while its blueprint is being written. A flag may stand on any of its handlers."""

    name: str
    is_start: bool = False
    is_end: bool = False
    is_aggregator: bool = False
    outcome: str | None = None
    #: In the order of declaration, which is the order in which they are asked.
    conditional: list[Handler] = field(default_factory=list)
    default: Handler | None = None

    @property
    def handlers(self) -> list[Handler]:
        """All of them, the unconditional one last."""
        return [*self.conditional, self.default] if self.default is not None else list(self.conditional)

    @property
    def end_outcome(self) -> str:
        """How a job ends here: what was said, else `failed` for the state of that name."""
        return self.outcome or ("failed" if self.name == FAILED_STATE else "finished")

    def add(self, handler: Handler) -> str | None:
        """Take one more handler, or say why not."""
        if handler.condition is not None:
            self.conditional.append(handler)
        elif self.default is None:
            self.default = handler
        else:
            return (
                f"state {self.name!r}: a second handler without a condition, {handler.name} at {handler.location}; "
                f"the first is {self.default.name} at {self.default.location}"
            )
        return None
