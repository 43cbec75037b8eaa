import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.config import (
    PREFIX,
    SETTINGS,
    Config,
    Connection,
    LocalAddressFile,
    WorkerConfig,
    find_url,
    url_for,
)
from regista.config.settings import Settings, settings_of
from regista.errors import ConfigError

SECRET = "correct horse battery staple"


def test_every_field_has_exactly_one_setting() -> None:
    assert [setting.field for setting in SETTINGS] == list(Config.__struct_fields__)
    assert len({setting.env for setting in SETTINGS}) == len(SETTINGS)


def test_defaults_are_those_of_the_documents() -> None:
    config = Config.from_env({})

    assert config == Config()
    assert config.instance_id == socket.gethostname()
    assert (config.job_max_retries, config.worker_timeout_s) == (3, 300)
    assert (config.watcher_interval_s, config.watcher_limit) == (20, 500)
    assert config.executor_max_concurrent_jobs == 1000
    assert (config.tz, config.storage, config.history_database_uri) == ("UTC", "memory", "")


def test_there_is_no_default_secret() -> None:
    assert Config().approval_secret == ""


def test_the_environment_is_read_under_its_own_names() -> None:
    config = Config.from_env(
        {
            "INSTANCE_ID": "orchestra-1",
            "REGISTA_STORAGE": "sqlite:/var/lib/regista/jobs.db",
            "REGISTA_LEASE_SECONDS": "7.5",
            "WATCHER_LIMIT": " 20 ",
            "LOG_LEVEL": "debug",
            "TZ": "Europe/Madrid",
            "HOME": "/home/someone",
        }
    )

    assert config.instance_id == "orchestra-1"
    assert config.storage == "sqlite:/var/lib/regista/jobs.db"
    assert config.lease_s == 7.5
    assert config.watcher_limit == 20
    assert config.log_level == "DEBUG"
    assert config.tz == "Europe/Madrid"


def test_without_an_argument_the_process_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name.env, raising=False)
    monkeypatch.setenv("JOB_MAX_RETRIES", "9")

    assert Config.from_env().job_max_retries == 9


def test_defaults_take_the_place_of_the_fields_own_and_give_way_to_the_environment() -> None:
    kept = {"storage": "sqlite:kept.db"}

    assert Config.from_env({}, defaults=kept).storage == "sqlite:kept.db"
    assert Config.from_env({"REGISTA_STORAGE": "memory"}, defaults=kept).storage == "memory"
    assert Config.from_env({}, defaults=kept, storage="sqlite:given.db").storage == "sqlite:given.db"
    assert Config.from_env({}, defaults=kept, storage=None).storage == "sqlite:kept.db"


def test_a_redis_host_is_the_storage_unless_another_is_named() -> None:
    there = {"REDIS_HOST": "cache.local"}

    assert Config.from_env(there).storage == "redis://cache.local:6379/0"
    assert Config(redis_host="::1", redis_port=7000, redis_db=3).storage == "redis://[::1]:7000/3"
    assert Config.from_env({**there, "REGISTA_STORAGE": "memory"}).storage == "memory"
    assert Config.from_env(there, storage="sqlite:jobs.db").storage == "sqlite:jobs.db"
    assert Config.from_env({}).storage == "memory"


def test_the_credentials_of_redis_are_part_of_its_address_and_never_shown() -> None:
    words = {"REDIS_HOST": "h", "REDIS_USER": "stage", "REDIS_PASSWORD": "p@ss/word", "REDIS_TLS": "true"}

    config = Config.from_env(words)

    assert config.storage == "rediss://stage:p%40ss%2Fword@h:6379/0"
    assert Config(redis_host="h", redis_password="only").storage == "redis://:only@h:6379/0"
    assert "p%40ss" not in repr(config)
    assert "p@ss" not in repr(config)


@pytest.mark.parametrize("kind", [Config, WorkerConfig, Connection], ids=lambda kind: kind.__name__)
def test_every_field_of_every_kind_of_process_has_its_setting(kind: type[Settings]) -> None:
    assert [setting.field for setting in settings_of(kind)] == list(kind.__struct_fields__)


def test_an_empty_variable_counts_as_unset() -> None:
    assert Config.from_env({"WATCHER_LIMIT": "", "TZ": " "}) == Config()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("JOB_MAX_RETRIES", "three", "JOB_MAX_RETRIES: expected a whole number, 0 or more, got 'three'"),
        ("JOB_MAX_RETRIES", "-1", "JOB_MAX_RETRIES: expected a whole number, 0 or more, got -1"),
        ("WATCHER_LIMIT", "0", "WATCHER_LIMIT: expected a whole number, 1 or more, got 0"),
        ("WATCHER_LIMIT", "1.5", "WATCHER_LIMIT: expected a whole number, 1 or more, got '1.5'"),
        ("REGISTA_LEASE_SECONDS", "0", "REGISTA_LEASE_SECONDS: expected seconds, more than 0, got 0.0"),
        ("REGISTA_PATIENCE_SECONDS", "nan", "REGISTA_PATIENCE_SECONDS: expected seconds, 0 or more, got nan"),
        ("WORKER_TIMEOUT_SECONDS", "inf", "WORKER_TIMEOUT_SECONDS: expected seconds, more than 0, got inf"),
        (
            "REGISTA_STORAGE",
            "mysql:x",
            "REGISTA_STORAGE: expected memory, sqlite:PATH or redis://HOST, got 'mysql:x'",
        ),
        (
            "REGISTA_STORAGE",
            "sqlite:",
            "REGISTA_STORAGE: expected memory, sqlite:PATH or redis://HOST, got 'sqlite:'",
        ),
        ("INSTANCE_ID", "a b", "INSTANCE_ID: expected a name without blanks, got 'a b'"),
        (
            "TZ",
            "Mars/Olympus",
            "expected the name of a time zone, like UTC or Europe/Madrid, got 'Mars/Olympus'",
        ),
        ("TZ", "../etc/passwd", "expected the name of a time zone"),
        ("LOG_LEVEL", "loud", "LOG_LEVEL: expected one of DEBUG, INFO, WARNING, ERROR, CRITICAL, got 'LOUD'"),
    ],
)
def test_a_wrong_value_says_what_was_expected_and_what_was_found(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_env({name: text})

    assert message in str(caught.value)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lease_s", -1),
        ("lease_s", "30"),
        ("lease_s", True),
        ("lost_budget", 1.0),
        ("lost_budget", True),
        ("instance_id", ""),
        ("tz", None),
        ("log_level", "debug"),
        ("storage", None),
    ],
)
def test_values_from_code_meet_the_same_rules_under_the_name_of_the_field(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**{field: value})

    assert (caught.value.name, caught.value.got) == (field, value)


def test_a_changed_copy_is_checked_too() -> None:
    with pytest.raises(ConfigError):
        msgspec.structs.replace(Config(), watcher_limit=0)


def test_it_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Config().lease_s = 1  # type: ignore[misc]


def test_an_unknown_name_with_our_prefix_stops_the_start_and_hints() -> None:
    with pytest.raises(ConfigError, match="did you mean REGISTA_LEASE_SECONDS") as caught:
        Config.from_env({"REGISTA_LEASE_SECOND": "30"})

    assert caught.value.name == "REGISTA_LEASE_SECOND"


def test_our_prefix_before_a_name_of_the_documents_is_hinted_at() -> None:
    with pytest.raises(ConfigError, match=r"did you mean WATCHER_LIMIT\?"):
        Config.from_env({"REGISTA_WATCHER_LIMIT": "30"})


def test_an_unknown_name_unlike_any_other_gets_no_hint() -> None:
    with pytest.raises(ConfigError, match="expected the name of a setting, got 'REGISTA_XYZ'"):
        Config.from_env({"REGISTA_XYZ": "30"})


def test_secrets_appear_neither_in_repr_nor_in_errors() -> None:
    config = Config(approval_secret=SECRET)
    with pytest.raises(ConfigError) as too_short:
        Config(approval_secret=SECRET[:8])
    with pytest.raises(ConfigError) as mistyped:
        Config.from_env({"REGISTA_APROVAL_SECRET": SECRET})

    assert config.approval_secret == SECRET
    for shown in (repr(config), str(dict(config.__rich_repr__())), str(too_short.value), str(mistyped.value)):
        assert SECRET[:8] not in shown


def test_the_password_of_a_uri_is_not_shown() -> None:
    config = Config(history_database_uri="postgresql://regista:hunter2@db/history")
    with pytest.raises(ConfigError) as caught:
        Config(history_database_uri="mysql://regista:hunter2@db/history")

    for shown in (repr(config), str(dict(config.__rich_repr__())), str(caught.value)):
        assert "hunter2" not in shown
        assert "regista:***@db" in shown


@given(st.dictionaries(st.sampled_from([s.env for s in SETTINGS]), st.text()))
def test_any_environment_gives_a_valid_config_or_a_config_error(environ: dict[str, str]) -> None:
    refused = None
    config = Config()
    try:
        config = Config.from_env(environ)
    except ConfigError as error:
        refused = error.name

    assert refused is None or refused in environ
    assert all(s.kind.accepts(getattr(config, s.field)) for s in SETTINGS)


@given(st.text(min_size=1))
def test_no_unknown_name_with_our_prefix_is_overlooked(rest: str) -> None:
    name = PREFIX + rest
    if name not in {setting.env for setting in SETTINGS}:
        with pytest.raises(ConfigError):
            Config.from_env({name: "1"})


@pytest.mark.parametrize("port", ["65536", "99999", "-1"])
def test_a_port_that_no_machine_has_is_refused(port: str) -> None:
    assert Config.from_env({"API_PORT": "65535"}).api_port == 65535
    with pytest.raises(ConfigError, match="API_PORT: expected a whole number from 0 to 65535"):
        Config.from_env({"API_PORT": port})


def test_a_worker_may_be_told_the_url_by_the_clients_name_for_it() -> None:
    urls = {"REGISTA_URL": "http://client:1"}

    assert WorkerConfig.from_env(urls).orchestrator_url == "http://client:1"
    assert WorkerConfig.from_env(urls | {"ORCHESTRATOR_URL": "http://w:2"}).orchestrator_url == "http://w:2"


def test_an_orchestrator_on_this_machine_is_found_until_it_stops(tmp_path: Path) -> None:
    here, ours, theirs = str(tmp_path / "state"), "http://127.0.0.1:4711", "http://[::1]:4712"
    assert url_for("", here) == "http://127.0.0.1:8080"

    first, second = LocalAddressFile(here, ours), LocalAddressFile(here, theirs, every_s=0.01)
    first.remove()  # which was not there yet
    first = LocalAddressFile(here, ours)
    assert first.leave() is None
    assert url_for("", here) == ours
    assert url_for("http://given:1/", here) == "http://given:1"

    turn = threading.Event()
    assert second.leave(turn.set) == ours
    assert url_for("", here) == ours
    first.remove()
    first.remove()
    assert turn.wait(5)
    assert url_for("", here) == theirs
    second.remove()
    assert find_url(here) is None
    assert [path.name for path in Path(here).iterdir()] == ["url.lock"]


def test_whoever_waits_for_its_turn_and_stops_leaves_the_address_of_the_other(tmp_path: Path) -> None:
    first, second = (
        LocalAddressFile(str(tmp_path), "http://[::1]:1"),
        LocalAddressFile(str(tmp_path), "http://[::1]:2"),
    )
    assert (first.leave(), second.leave()) == (None, "http://[::1]:1")

    second.remove()

    assert find_url(str(tmp_path)) == "http://[::1]:1"
    first.remove()


@pytest.mark.parametrize(
    "found", ["http://elsewhere.org:80", "https://elsewhere.org:1", "http://127.0.0.1.org:1", "", "\xff"]
)
def test_an_address_that_is_not_of_this_machine_is_not_believed(found: str, tmp_path: Path) -> None:
    (tmp_path / "url").write_bytes(found.encode("latin-1"))

    assert find_url(str(tmp_path)) is None
