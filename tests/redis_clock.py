"""RedisStorage on a clock that tests move by hand, on a real server."""

from typing import Any

from regista.clock import Clock
from regista.storage.codec import micros
from regista.storage.redis.line import Command, Reply
from regista.storage.redis.store import RedisStorage

#: In the place of lua/lib/now.lua.
NOW = """
local function now()
  return tonumber(redis.call('GET', KEYS[1] .. 'clock'))
end
"""
#: The same; and somebody is taken to have spoken with the store all the while, so that no outage is seen.
NOW_AND_SEEN = """
local function now()
  local at = redis.call('GET', KEYS[1] .. 'clock')
  redis.call('HSET', KEYS[1] .. 'pulse', 'seen', at)
  return tonumber(at)
end
"""


class HandMovedRedis(RedisStorage):
    """The server's time is that of the test's clock: it is told with every call."""

    def __init__(self, url: str, clock: Clock, *, seen: bool = True, **options: Any) -> None:
        super().__init__(url, clock, now=NOW_AND_SEEN if seen else NOW, **options)
        ask = self._link.ask

        async def ask_then(*commands: Command) -> list[Reply]:
            return (await ask(("SET", f"{self._prefix}clock", micros(clock.now())), *commands))[1:]

        self._link.ask = ask_then  # type: ignore[method-assign]
