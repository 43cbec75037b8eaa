"""What deploy/ says, held against what is there: files, settings, command lines, limits."""

import ipaddress
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from regista.cli.parser import build_parser
from regista.config import SETTINGS, WORKER_SETTINGS, Config, Connection, WorkerConfig
from tests.acceptance.nginx_kit import DEPLOY, Nginx, until
from tests.conftest import require_binary

ROOT = DEPLOY.parent
#: What whoever fills .env in could write.
FILLED_IN = {
    "CLIENT_TOKEN": "c" * 32,
    "WORKER_TOKEN": "w" * 32,
    "REGISTA_APPROVAL_SECRET": "a" * 32,
    "REDIS_PASSWORD": "r" * 32,
    "SITE_HOST": "regista.example.org",
}
ORCHESTRATORS = ["orchestrator-1", "orchestrator-2", "orchestrator-3"]
WORKERS = ["worker-1", "worker-2"]
#: Made on the spot by deploy/make-certificates.
CERTIFICATES = "./nginx/certs/"

_VARIABLE = re.compile(r"(?<!\$)\$\{(?P<name>\w+)(?P<more>[^}]*)\}")
COMPOSE = (DEPLOY / "compose.yaml").read_text()


def filled_in(found: re.Match[str]) -> str:
    """A variable's value, as compose puts it in."""
    return FILLED_IN.get(found["name"], found["more"].removeprefix(":-"))


def compose() -> dict[str, Any]:
    """The file as compose understands it, with .env filled in."""
    read: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(filled_in, COMPOSE))
    return read


SERVICES: dict[str, dict[str, Any]] = compose()["services"]


# -- compose.yaml ------------------------------------------------------------------------------------


def test_there_are_nginx_three_orchestrators_redis_and_two_workers() -> None:
    assert set(SERVICES) == {"nginx", "redis", *ORCHESTRATORS, *WORKERS}


def test_every_secret_comes_from_env_and_none_has_a_default() -> None:
    example = dict(
        line.split("=", 1)
        for line in (DEPLOY / ".env.example").read_text().splitlines()
        if line[:1].isalpha()
    )
    asked = {found["name"]: found["more"] for found in _VARIABLE.finditer(COMPOSE)}

    assert set(example.values()) == {""}
    assert set(example) == set(FILLED_IN) == set(asked) - {"TZ"}
    for name in example:
        assert asked[name].startswith(":?"), f"{name} must be asked for"


def test_whoever_exports_env_can_still_run_our_command_line() -> None:
    assert Connection.from_env(FILLED_IN).token == FILLED_IN["CLIENT_TOKEN"]
    assert WorkerConfig.from_env(FILLED_IN).token == FILLED_IN["WORKER_TOKEN"]


def test_what_is_secret_is_not_kept_in_the_repository() -> None:
    ignored = subprocess.run(
        ["git", "check-ignore", "deploy/.env", "deploy/nginx/certs/server.key"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if "not a git repository" in ignored.stderr:
        pytest.skip("not a checkout")

    assert len(ignored.stdout.splitlines()) == 2


@pytest.mark.parametrize("name", [*ORCHESTRATORS, *WORKERS])
def test_its_command_is_one_of_ours_and_its_app_is_there(name: str) -> None:
    asked = build_parser().parse_args(SERVICES[name]["command"])

    assert asked.run == ("serve.serve" if name in ORCHESTRATORS else "worker.work")
    assert (DEPLOY / "app" / asked.app).exists()
    assert "./app:/app:ro" in SERVICES[name]["volumes"]


@pytest.mark.parametrize("name", ORCHESTRATORS)
def test_an_orchestrators_environment_is_made_of_settings(name: str) -> None:
    environment = SERVICES[name]["environment"]

    assert set(environment) <= {setting.env for setting in SETTINGS}
    config = Config.from_env(environment)
    assert config.instance_id == name
    assert config.storage == f"redis://:{FILLED_IN['REDIS_PASSWORD']}@redis:6379/0"


@pytest.mark.parametrize("name", WORKERS)
def test_a_workers_environment_is_made_of_settings_and_of_whom_python_trusts(name: str) -> None:
    environment = dict(SERVICES[name]["environment"])

    trusted = environment.pop("SSL_CERT_FILE")
    assert set(environment) <= {setting.env for setting in WORKER_SETTINGS}
    assert WorkerConfig.from_env(environment).worker_id == name
    assert f"{CERTIFICATES}ca.pem:{trusted}:ro" in SERVICES[name]["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_everything_that_is_mounted_is_there(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source, _, _ = volume.partition(":")
        if source.startswith("."):
            assert source.startswith(CERTIFICATES) or (DEPLOY / source).exists(), source
        else:
            assert source in compose()["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_it_comes_back_by_itself_and_has_limits(name: str) -> None:
    service = SERVICES[name]

    assert service["restart"] == "unless-stopped"
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
    for other, needs in service.get("depends_on", {}).items():
        assert needs == {"condition": "service_healthy"}
        assert "healthcheck" in SERVICES[other]


@pytest.mark.parametrize("name", SERVICES)
def test_it_cannot_write_to_its_image_or_become_more_than_it_is(name: str) -> None:
    service = SERVICES[name]

    assert service["read_only"] is True
    assert service["security_opt"] == ["no-new-privileges:true"]
    # nginx listens on a port of root's, and reads a key that is root's, before its workers become nobody.
    assert service.get("cap_drop") == (None if name == "nginx" else ["ALL"])


def test_redis_is_not_root_though_its_command_is_a_shell() -> None:
    assert SERVICES["redis"]["command"][0] == "sh"
    assert SERVICES["redis"]["user"] == "redis"


def test_a_process_is_given_longer_to_stop_than_it_takes() -> None:
    for name in ORCHESTRATORS:
        assert seconds(SERVICES[name]["stop_grace_period"]) > Config().stop_grace_s
    for name in WORKERS:
        assert seconds(SERVICES[name]["stop_grace_period"]) > WorkerConfig().shutdown_timeout_s


def test_the_edge_does_not_wait_for_streams_that_never_end_while_nobody_is_let_in() -> None:
    assert seconds(SERVICES["nginx"]["stop_grace_period"]) <= 3


def test_nginx_asks_the_orchestrators_where_compose_puts_them() -> None:
    told = re.findall(r"^server (\S+):8080 ", (DEPLOY / "nginx/regista/orchestrators.conf").read_text(), re.M)
    inside = compose()["networks"]["inside"]["ipam"]["config"][0]["subnet"]

    assert told == [SERVICES[name]["networks"]["inside"]["ipv4_address"] for name in ORCHESTRATORS]
    assert all(ipaddress.ip_address(address) in ipaddress.ip_network(inside) for address in told)


def test_only_the_edge_can_be_reached_from_outside_and_workers_reach_nothing_but_the_edge() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["nginx"]
    assert all(set(SERVICES[name]["networks"]) == {"outside"} for name in WORKERS)
    assert [name for name, service in SERVICES.items() if "outside" in service["networks"]] == [
        "nginx",
        *WORKERS,
    ]
    assert compose()["networks"]["store"] == {"internal": True}
    assert set(SERVICES["redis"]["networks"]) == {"store"}


def test_redis_writes_everything_down_and_throws_nothing_away() -> None:
    lines = [line.split() for line in (DEPLOY / "redis/redis.conf").read_text().splitlines()]
    told = {line[0]: line[1:] for line in lines if line and line[0] != "#"}

    assert told["appendonly"] == ["yes"]
    assert told["appendfsync"] in (["everysec"], ["always"])
    assert told["maxmemory-policy"] == ["noeviction"]


def test_redis_takes_the_file_as_it_is_shipped(tmp_path: Path) -> None:
    place = ["--port", "0", "--unixsocket", str(tmp_path / "socket"), "--dir", str(tmp_path)]
    command = [require_binary("redis-server"), str(DEPLOY / "redis/redis.conf"), *place]

    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as redis:
        try:
            until(lambda: (tmp_path / "socket").exists() or redis.poll() is not None, "its start", 4)
        finally:
            redis.terminate()

    assert redis.returncode == 0
    assert (tmp_path / "appendonlydir").is_dir()


# -- nginx -------------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    """A time, as nginx and compose write it."""
    number, unit = re.fullmatch(r"(\d+)([sm])", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


def directive(name: str) -> str:
    """The value of nginx's first directive of this name, which is that of the server."""
    found = re.search(rf"^    {name} ([^;]+);", (DEPLOY / "nginx/regista.conf").read_text(), re.M)
    assert found, name
    return found[1]


def test_the_limits_of_nginx_agree_with_the_orchestrators() -> None:
    config = Config()

    assert directive("client_max_body_size") == f"{config.max_body_bytes // 2**20}m"
    assert directive("large_client_header_buffers").endswith(f" {config.max_header_bytes // 2**10}k")
    assert seconds(directive("client_body_timeout")) == config.body_timeout_s
    assert seconds(directive("client_header_timeout")) == config.body_timeout_s
    assert seconds(directive("proxy_read_timeout")) > max(config.max_wait_s, config.poll_timeout_s)


def test_nginx_takes_the_files_as_they_are_shipped(tmp_path: Path) -> None:
    nginx = Nginx(tmp_path / "nginx", [])
    for name in ("orchestrators.conf", "site.conf"):
        shipped = (DEPLOY / "nginx/regista" / name).read_text()
        # The port and the log need root; everything else is as it is.
        nginx.write(name, shipped.replace("443", str(nginx.port)).replace("/var/log/nginx/", ""))

    checked = nginx.check()

    assert checked.returncode == 0, checked.stderr
    assert "[warn]" not in checked.stderr


# -- Dockerfile and app ------------------------------------------------------------------------------

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def test_the_dockerfile_copies_what_is_there_and_is_sent_to_it() -> None:
    sent = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [
        each for line in re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.M) for each in line.split()
    ]

    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in sent


def test_the_image_runs_as_nobody_in_particular_and_starts_our_command_line() -> None:
    last_stage = DOCKERFILE.rpartition("\nFROM ")[2]

    assert re.search(r"^USER regista$", last_stage, re.M)
    assert 'ENTRYPOINT ["regista"]' in last_stage


def test_the_image_has_parts_that_exist() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (asked,) = re.findall(r"^ARG EXTRAS=(\S+)$", DOCKERFILE, re.M)

    assert set(asked.split(",")) <= set(known)


def test_the_app_is_fit_to_be_served() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "regista", "blueprints", "check", "hello.py", "--offline"],
        cwd=DEPLOY / "app",
        capture_output=True,
        text=True,
        timeout=9,
    )

    assert done.returncode == 0, done.stderr
