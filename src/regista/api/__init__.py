"""The HTTP edge: thin handlers over the services below.

An application is made by `OrchestratorEngine.app`; `app[STAGE]` is what its handlers work with, and
`request[CLIENT]` is who asks.
"""

from .stage import CLIENT, STAGE, Stage

__all__ = ["CLIENT", "STAGE", "Stage"]
