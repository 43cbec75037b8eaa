"""The storm: everything that can befall a cluster, by chance, but the same chance for the same seed."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from tests.chaos.cluster import DIRECTORS, LEASE_S, WORKERS, Cluster

#: Longer than a lease: what a frozen one held is given to somebody else meanwhile.
_PAST_LEASE_S = LEASE_S * 1.5
#: Longer than a call to the store waits for it.
_REDIS_AWAY_S = 3.0

Fault = Callable[[], Awaitable[None]]


class Storm:
    """Two lanes of faults at once, one after the other in each: first each fault once, then by chance.

    Processes go down in the one while the network and Redis do in the other, so faults meet in pairs.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.fired: Counter[str] = Counter()
        self._cluster = cluster
        self._seed = seed
        self._lanes: dict[str, list[Fault]] = {
            "processes": [self.kill_director, self.kill_worker, self.freeze_director, self.freeze_worker],
            "network": [
                self.restart_redis,
                self.freeze_redis,
                self.cut_director,
                self.stall_director,
                self.cut_worker,
            ],
        }
        self._chance = {name: random.Random(f"{seed} {name}") for name in self._lanes}

    @property
    def faults(self) -> list[str]:
        """Everything that should happen."""
        return [fault.__name__ for faults in self._lanes.values() for fault in faults]

    async def blow(self, seconds: float) -> None:
        """For so long, and until each fault was there. Afterwards everything works again, or soon will."""
        async with asyncio.TaskGroup() as lanes:
            for name, faults in self._lanes.items():
                lanes.create_task(self._lane(self._chance[name], faults, seconds), name=name)

    async def _lane(self, chance: random.Random, faults: Sequence[Fault], seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        first, end = chance.sample(faults, len(faults)), clock() + seconds
        while clock() < end or first:
            await asyncio.sleep(chance.uniform(0.3, 2.0))
            fault = first.pop() if first else chance.choice(faults)
            await fault()
            self.fired[fault.__name__] += 1
            self._cluster.check()

    # -- processes -------------------------------------------------------------------------------

    async def kill_director(self) -> None:
        chance = self._chance["processes"]
        await self._cluster.kill_director(chance.randrange(DIRECTORS), chance.choice([0.0, 1.0]))

    async def kill_worker(self) -> None:
        await self._cluster.kill_worker(self._chance["processes"].randrange(WORKERS))

    async def freeze_director(self) -> None:
        """Its jobs are taken over, and when it wakes up it must notice."""
        process = self._cluster.directors[self._chance["processes"].randrange(DIRECTORS)]
        await self._freeze(process.send_signal, _PAST_LEASE_S)

    async def freeze_worker(self) -> None:
        """Its tasks are given to another, and its late results are refused."""
        process = self._cluster.workers[self._chance["processes"].randrange(WORKERS)]
        await self._freeze(process.send_signal, _PAST_LEASE_S)

    async def _freeze(self, send: Callable[[signal.Signals], None], seconds: float) -> None:
        send(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            send(signal.SIGCONT)

    # -- network and store -----------------------------------------------------------------------

    async def restart_redis(self) -> None:
        """`kill -9`: with `appendfsync always` nothing that was acknowledged may be missing afterwards."""
        redis = self._cluster.redis
        await asyncio.to_thread(redis.kill, signal.SIGKILL)
        await asyncio.sleep(self._chance["network"].choice([0.0, _REDIS_AWAY_S]))
        await asyncio.to_thread(redis.start)

    async def freeze_redis(self) -> None:
        await self._freeze(self._cluster.redis.kill, _REDIS_AWAY_S)

    async def cut_director(self) -> None:
        """One orchestrator cannot reach Redis for a while, shorter or longer than a lease."""
        chance = self._chance["network"]
        line = chance.choice(self._cluster.store_lines)
        line.close_the_line()
        await asyncio.sleep(chance.choice([0.5, _PAST_LEASE_S]))
        line.open_the_line()

    async def stall_director(self) -> None:
        """Nothing comes through and nothing is refused, as where packets are dropped."""
        line = self._chance["network"].choice(self._cluster.store_lines)
        line.stall()
        await asyncio.sleep(_REDIS_AWAY_S)
        line.go_on()

    async def cut_worker(self) -> None:
        """One worker cannot reach anybody."""
        chance = self._chance["network"]
        lines = chance.choice(self._cluster.worker_lines)
        for line in lines:
            line.close_the_line()
        await asyncio.sleep(chance.choice([0.5, _PAST_LEASE_S]))
        for line in lines:
            line.open_the_line()
