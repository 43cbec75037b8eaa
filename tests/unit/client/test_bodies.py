import pytest

from regista import Client
from regista.client.bodies import members, new_key, wish


def test_what_is_left_open_is_left_out_and_there_is_always_a_key() -> None:
    body = wish("greet", None, priority=None, webhook_url="http://x")

    assert body.pop("idempotency_key")
    assert body == {"blueprint": "greet", "input": {}, "webhook_url": "http://x"}
    assert wish("greet", {"n": 1}, idempotency_key="mine")["idempotency_key"] == "mine"
    assert members("data", None) == {}
    assert new_key() != new_key()


@pytest.mark.parametrize("wrong", [[1], [], "text", 3, False])
async def test_an_input_that_is_no_dict_is_refused_before_anything_is_sent(wrong: object) -> None:
    async with Client("http://127.0.0.1:9", "token") as client:
        for call in (client.submit("x", wrong), client.run("x", wrong), client.fork("j", wrong)):  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"input: expected a dict like .*, got "):
                await call
