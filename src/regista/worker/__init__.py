"""The performer's side: task functions, and ways to connect them to an orchestrator."""

from .tasks import TaskContext, Worker

__all__ = ["TaskContext", "Worker"]
