"""What tests of blueprints need. Names are resolved when they are first used, like those of `regista`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

#: Every public name and the module where it lives; `invariants` is a module itself.
_HOMES = {
    "Clock": "regista.testing.clock",
    "TestOrchestrator": "regista.testing.orchestrator",
    "VirtualLoop": "regista.testing.loop",
    "simulate": "regista.testing.simulation",
    "invariants": "regista.testing.invariants",
}

__all__ = list(_HOMES)

if TYPE_CHECKING:
    from . import invariants as invariants
    from .clock import Clock as Clock
    from .loop import VirtualLoop as VirtualLoop
    from .orchestrator import TestOrchestrator as TestOrchestrator
    from .simulation import simulate as simulate


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regista.testing' has no attribute {name!r}")
    module = import_module(_HOMES[name])
    value = module if name == "invariants" else getattr(module, name)
    globals()[name] = value  # the next use finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
