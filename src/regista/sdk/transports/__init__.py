"""Transports: the ways in which a worker exchanges tasks and results with an orchestrator."""
