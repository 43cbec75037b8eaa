"""The state machine: job + decision → step. Pure: no asyncio, no clock, no I/O; both engines use it."""
