"""clients.toml and workers.toml."""

from pathlib import Path

import pytest

from regista.config.people import add_clients, read_clients, read_workers
from regista.errors import ConfigError
from regista.model import ClientConfig, Rate
from regista.tokens import digest


def written(folder: Path, text: str) -> Path:
    path = folder / "people.toml"
    path.write_text(text)
    return path


def test_a_client_is_what_its_table_says(tmp_path: Path) -> None:
    text = f"""
[acme]
token = "acme-secret"
plan = "gold"
monthly_attempts = 5000
params = {{ languages = ["en"] }}
region = "eu"

["the office"]
token_sha256 = "{digest("office-secret")}"
operator = true
"""
    clients = read_clients(written(tmp_path, text))
    assert clients == {
        digest("acme-secret"): ClientConfig(
            name="acme", plan="gold", monthly_attempts=5000, params={"languages": ["en"], "region": "eu"}
        ),
        digest("office-secret"): ClientConfig(name="the office", operator=True),
    }
    assert "acme-secret" not in repr(clients)


def test_a_client_may_have_rate_limits_of_its_own(tmp_path: Path) -> None:
    text = '[a]\ntoken = "t"\nrate_limits = { submit = "100/s", read = "off" }'
    client = read_clients(written(tmp_path, text))[digest("t")]
    assert client.rate_limits == {"submit": Rate(100, 1.0), "read": None}
    assert client.params == {}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[a]\nplan = "x"', 1, "either token or token_sha256, got 'neither'"),
        ('[a]\ntoken = "x"\ntoken_sha256 = "y"', 1, "got 'both'"),
        ('[a]\n\ntoken = ""', 3, "a text that is not empty"),
        ('[a]\ntoken = 5', 2, "a text that is not empty"),
        ('[a]\ntoken_sha256 = "abc"', 2, "64 hex digits"),
        ('[a]\ntoken = "t"\nmonthly_attempts = -1', 3, "a whole number, 0 or more, got -1"),
        ('[a]\ntoken = "t"\nmonthly_attempts = true', 3, "a whole number"),
        ('[a]\ntoken = "t"\nplan = 1', 3, "text, got 1"),
        ('[a]\ntoken = "t"\noperator = "yes"', 3, "true or false"),
        ('[a]\ntoken = "t"\nparams = 1', 3, "a table"),
        ('[a]\ntoken = "t"\n[b]\ntoken = "t"', 4, "a token of its own, got 'the token of a'"),
        ('[a]\ntoken = "t"\nrate_limits = "100/s"', 3, "a table"),
        ('[a]\ntoken = "t"\nrate_limits = { submit = "fast" }', 3, "a rate like 100/s"),
        ('[a]\ntoken = "t"\nrate_limits = { result = "1/s" }', 3, "one of submit, read, got 'result'"),
        ('[a]\ntoken = "t"\n[a.rate_limits]\nread = "1/s"\nsubmit = 5', 5, "a rate like 100/s"),
        ('[a]\ntoken = "t"\n["a".rate_limits]\n"submit" = ""', 4, "a rate like 100/s"),
        ('[a]\ntoken = "t"\nmonthly_atempts = 5', 3, "did you mean monthly_attempts?"),
        ('[a]\ntoken = "t"\n\noperater = true', 4, "did you mean operator?"),
        ('[a]\ntoken = "t"\nrate_limit = { submit = "1/s" }', 3, "did you mean rate_limits?"),
        ('[a]\ntoken = "t"\nwebhook_ur = "https://a.example"', 3, "did you mean webhook_url?"),
        ('[a]\ntokn = "t"', 2, "did you mean token?"),
        ('a = 1', 1, "a table ([a])"),
    ],
)  # fmt: skip
def test_a_mistake_in_clients_is_named_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_clients(written(tmp_path, text))
    assert f"people.toml, line {line}: " in str(caught.value)
    assert said in str(caught.value)


def test_keys_of_ones_own_may_be_anything_that_looks_like_none_of_ours(tmp_path: Path) -> None:
    own = {"region": "eu", "planet": "mars", "monthly_report": "1st", "limits": "none", "webhooks": "old"}
    lines = "".join(f'{key} = "{value}"\n' for key, value in own.items())
    client = read_clients(written(tmp_path, f'[a]\ntoken = "t"\n{lines}params = {{ operater = "Bob" }}'))
    assert client[digest("t")].params == own | {"operater": "Bob"}


def test_a_token_that_is_somebodys_already_is_refused_by_where_it_comes_from() -> None:
    known = {digest("t"): ClientConfig(name="acme")}
    with pytest.raises(ConfigError, match=r"^CLIENT_TOKEN: .*got 'the token of the client acme'"):
        add_clients(known, {digest("t"): ClientConfig(name="default", operator=True)}, "CLIENT_TOKEN")
    assert known == {digest("t"): ClientConfig(name="acme")}
    add_clients(known, {digest("u"): ClientConfig(name="bob")}, "clients.toml")
    assert [client.name for client in known.values()] == ["acme", "bob"]


def test_a_token_is_never_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_workers(written(tmp_path, '[w]\ntoken = ["secret"]'))
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a file that can be read, got 'No such file"):
        read_clients(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="expected TOML"):
        read_clients(written(tmp_path, "[a]\ntoken = "))
    (tmp_path / "people.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_clients(tmp_path / "people.toml")


def test_a_worker_has_its_own_token_or_that_of_the_first_pattern_that_fits(tmp_path: Path) -> None:
    text = """
["render-7"]
token = "seven"
description = "the big one"
["pattern:render-*"]
token = "render"
["pattern:*"]
token = "any"
"""
    tokens = read_workers(written(tmp_path, text))
    assert [tokens.of(name) for name in ("render-7", "render-8", "edge")] == ["seven", "render", "any"]
    assert read_workers(written(tmp_path, "")).of("anybody") is None


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[w]\ndescription = "x"', 1, "token: a text that is not empty, got 'nothing'"),
        ('[w]\ntoken = "t"\ntokn = "x"', 3, "one of token, description"),
        ('[w]\ntoken = "t"\ndescription = 1', 3, "text, got 1"),
        ('[w]\ntoken = "t"\n["pattern:v*"]\ntoken = "t"', 4, "the token of w"),
    ],
)
def test_a_mistake_in_workers_is_named_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_workers(written(tmp_path, text))
    assert f"people.toml, line {line}: " in str(caught.value)
    assert said in str(caught.value)
