"""What a broken or hostile worker may send: valid messages with something wrong about them, and plain garbage."""

import random
from collections.abc import Callable
from typing import Any

import msgspec

#: Values that readers stumble over.
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 1e308, -0.0, 0.1, "", " ", "\0", "é",
    "x" * 300, "a\r\nb", "../../etc", "💥" * 20, "NaN", "null", [], {}, [[]], [None], {"": None}, {"a": {"b": {}}},
    [1, "x", None], "2026-13-45T99:99:99Z", "__class__", "%00", "' OR 1=1 --",
]  # fmt: skip
MODES = ("valid", "mutated", "garbage")


class Chance(random.Random):
    """A seeded die that knows how to spoil things."""

    def mode(self) -> str:
        return self.choices(MODES, (50, 35, 15))[0]

    def odd(self) -> Any:
        return self.choice(ODD)

    def bytes_of(self, most: int) -> bytes:
        return self.randbytes(self.randrange(most))

    def spoiled(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message with one to three members changed, dropped or made up."""
        made = dict(message)
        for _ in range(self.randint(1, 3)):
            key = self.choice([*made, "extra"]) if made else "extra"
            match self.randrange(5):
                case 0:
                    made.pop(key, None)
                case 1:
                    made[self.choice(["extra", "", "worker_id", "security", key.upper()])] = self.odd()
                case 2 if isinstance(made.get(key), dict):
                    made[key] = self.spoiled(made[key])
                case 3 if isinstance(made.get(key), list):
                    made[key] = [*made[key], self.odd()]
                case _:
                    made[key] = self.odd()
        return made

    def torn(self, body: bytes) -> bytes:
        """The bytes cut, flipped, doubled or stuffed."""
        at = self.randrange(len(body) + 1)
        match self.randrange(5):
            case 0:
                return body[:at]
            case 1:
                return body[:at] + self.bytes_of(20) + body[at:]
            case 2 if body:
                at = self.randrange(len(body))
                return body[:at] + bytes([body[at] ^ (1 << self.randrange(8))]) + body[at + 1 :]
            case 3:
                return body + body
            case _:
                return b"[" * self.randrange(3000) + body

    def written(self, mode: str, message: Any, encode: Callable[[Any], bytes]) -> bytes:
        """A message as it goes out: as it is, spoiled in its meaning or its bytes, or something else altogether."""
        if mode == "valid":
            return encode(message)
        if mode == "garbage":
            return self.bytes_of(200)
        if isinstance(message, dict) and self.random() < 0.7:
            message = self.spoiled(message)
        elif isinstance(message, list) and message and self.random() < 0.7:
            message = self.spoiled_frames(message)
        body = encode(message)
        return self.torn(body) if self.random() < 0.3 else body

    def spoiled_frames(self, frames: list[Any]) -> list[Any]:
        """Frames of the stream, one of them with a part that is odd, missing or too much."""
        made = [msgspec.to_builtins(frame) for frame in frames]
        at = self.randrange(len(made))
        frame = made[at] = list(made[at])
        match self.randrange(4):
            case 0:
                frame[self.randrange(len(frame))] = self.odd()
            case 1:
                made[at] = frame[: self.randrange(len(frame))]
            case 2:
                frame.append(self.odd())
            case _:
                made.insert(at, self.odd())
        return made
