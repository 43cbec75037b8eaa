"""A stock worker of the newer generation, run by its own environment: `python stock_worker.py PORT TOKEN SLOTS`."""

import asyncio
import logging
import os
import sys
from typing import Any

port, token, slots = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.environ |= {
    "ORCHESTRATOR_URL": f"http://127.0.0.1:{port}",
    "WORKER_TOKEN": token,
    "IDLE_POLL_DELAY": "0.001",
}

from avtomatika_worker import Worker  # type: ignore[import-not-found]  # noqa: E402

worker = Worker(worker_type="bench", max_concurrent_tasks=slots)


@worker.skill("noop")  # type: ignore[untyped-decorator]
async def noop(params: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"n": params["n"]}}


logging.disable(logging.CRITICAL)
asyncio.run(worker.main())
