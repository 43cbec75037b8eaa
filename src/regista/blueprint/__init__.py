"""Blueprints: the scripts that jobs follow, and what their handlers see and do."""

from .actions import ActionFactory
from .blueprint import StateMachineBlueprint
from .conditions import Condition
from .context import JobContext
from .datastore import AsyncDictStore, DataStores
from .graph import FAILED_STATE, Graph, StateInfo
from .handlers import Handler
from .loader import load_blueprints

__all__ = [
    "FAILED_STATE",
    "ActionFactory",
    "AsyncDictStore",
    "Condition",
    "DataStores",
    "Graph",
    "Handler",
    "JobContext",
    "StateInfo",
    "StateMachineBlueprint",
    "load_blueprints",
]
