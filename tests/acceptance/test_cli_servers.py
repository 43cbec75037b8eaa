"""`serve`, `dev` and `worker` as processes: how they start, stop, fail and come back."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from regista import Connection, SyncClient
from tests.acceptance.processes import APP, House

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.close()


def test_a_job_and_its_waiting_client_survive_kill_9_of_the_orchestrator(house: House) -> None:
    first = house.serve()
    house.start("worker", "app.py")
    tokens = {path.name: path.read_text() for path in (house.folder / ".regista").glob("*.token")}
    job_id = house.said("jobs", "run", "ask").strip()
    watching = house.start("jobs", "watch", job_id)
    assert watching.stdout is not None
    while "approval_requested" not in watching.stdout.readline():
        pass

    first.send_signal(signal.SIGKILL)
    with first:
        first.wait()
    house.serve()

    house.said("jobs", "approve", job_id)
    rest = watching.communicate(timeout=20)[0].splitlines()
    assert watching.returncode == 0, house.logs()
    assert rest[-1] == '"yes"'
    assert sum("approval_requested" in line for line in rest) == 0  # seen before; not told twice
    done = house.run("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait", "--timeout", "15")
    assert done.returncode == 0, house.logs()  # the worker has come back by itself
    assert tokens == {path.name: path.read_text() for path in (house.folder / ".regista").glob("*.token")}


def test_serve_says_in_json_where_it_is_and_ends_well_on_ctrl_c(house: House) -> None:
    process = house.start("serve", "app.py", "--port", "0", "--storage", "memory", "--json", "--dir", "state")
    assert process.stdout is not None
    greeting = json.loads(process.stdout.readline())

    assert greeting["url"].startswith("http://127.0.0.1:")
    assert greeting["docs"] == f"{greeting['url']}/docs"
    assert "state" in greeting["tokens"]
    assert house.run("jobs", "list", "--url", greeting["url"], "--dir", "state").returncode == 0
    assert house.end(process, signal.SIGINT) == 0
    assert all(
        json.loads(line)["message"] for line in (house.folder / "0-serve.log").read_text().splitlines()
    )


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--host", "0.0.0.0"], 2, "expected a token, since 0.0.0.0 can be reached from elsewhere"),
        (
            ["--storage", "mysql:x"],
            2,
            "--storage: expected memory, sqlite:PATH or redis://HOST, got 'mysql:x'",
        ),
        (["--host", "0.0.0.0"], 2, "CLIENT_TOKEN and WORKER_TOKEN: expected a token"),
        (["--storage", "sqlite:nowhere/jobs.db"], 2, "`mkdir -p nowhere` makes it"),
        (["--log-level", "loud"], 2, "--log-level: expected one of DEBUG, INFO"),
        (["--port", "-1"], 2, "--port: expected a whole number from 0 to 65535, got -1"),
        (["--port", "99999"], 2, "--port: expected a whole number from 0 to 65535, got 99999"),
        (["--nonsense"], 2, "unrecognized arguments: --nonsense"),
    ],
)
def test_a_start_that_cannot_be_is_refused_in_a_line(
    house: House, flags: list[str], code: int, words: str
) -> None:
    done = house.run("serve", "app.py", *flags)

    assert done.returncode == code
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_with_both_tokens_another_address_is_served(house: House) -> None:
    secrets = {"CLIENT_TOKEN": "client-secret", "WORKER_TOKEN": "worker-secret"}
    house.set(**secrets)
    process = house.start("serve", "app.py", "--host", "0.0.0.0", "--storage", "memory", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["tokens"] == "CLIENT_TOKEN and WORKER_TOKEN"

    assert house.run("jobs", "list").returncode == 0
    assert house.run("jobs", "list", CLIENT_TOKEN="wrong").returncode == 1
    assert not (house.folder / ".regista").exists()
    assert "secret" not in house.logs()


def test_an_app_without_what_is_needed_is_refused(house: House) -> None:
    (house.folder / "empty.py").write_text("")

    for command in ("serve", "worker", "dev"):
        done = house.run(command, "empty.py", *(["--no-reload"] if command == "dev" else []))
        assert (done.returncode, "at module level, found none" in done.stderr) == (1, True)
    assert house.run("serve").returncode == 2


def test_a_port_that_is_taken_is_said_in_a_line(house: House) -> None:
    house.serve("--storage", "memory")

    done = house.run("serve", "app.py", "--storage", "memory")

    assert done.returncode == 1
    assert "address already in use" in done.stderr.splitlines()[-1]


def test_a_worker_that_comes_first_waits_and_then_works(house: House) -> None:
    house.start("worker", "app.py", "--concurrency", "3")
    house.until_logged("no orchestrator|cannot|not there|waiting|refused")
    house.serve()

    done = house.run("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait", "--timeout", "15")

    assert done.returncode == 0, house.logs()
    (worker,) = json.loads(house.said("workers", "list", "--json"))["items"]
    assert worker["capacity"] == 3


def greeting_of(house: House) -> str:
    done = house.run(
        "jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait", "--timeout", "8", "--json"
    )
    return str(json.loads(done.stdout or "{}").get("result"))


def test_dev_works_alone_and_starts_again_when_a_file_changes(house: House) -> None:
    process = house.serve(command="dev")
    assert greeting_of(house) == "Hello, Ada!"
    job_id = house.said("jobs", "run", "ask").strip()

    (house.folder / "app.py").write_text(APP.replace("Hello, ", "Good evening, "))
    house.until_logged("app.py changed; starting again")
    assert process.stdout is not None
    assert house.url in process.stdout.readline()

    assert greeting_of(house) == "Good evening, Ada!"
    house.said("jobs", "approve", job_id)  # it has outlived the change
    assert house.run("jobs", "watch", job_id).returncode == 0
    assert house.end(process) == 0


def test_dev_survives_an_app_that_does_not_load_and_goes_on_when_it_does(house: House) -> None:
    process = house.serve(command="dev")
    (house.folder / "helper.py").write_text("greeting = 'Salut'\n")
    (house.folder / "app.py").write_text("from helper import missing\n" + APP)
    house.until_logged(r"app.py:1: ImportError: cannot import name 'missing'")

    (house.folder / "app.py").write_text(
        "from helper import greeting\n" + APP.replace("Hello,", "{greeting},")
    )
    assert process.stdout is not None
    assert house.url in process.stdout.readline(), house.logs()
    assert greeting_of(house) == "Salut, Ada!"

    (house.folder / "helper.py").write_text("greeting = 'Ciao'\n")  # what the app imports counts, too
    assert house.url in process.stdout.readline(), house.logs()
    assert greeting_of(house) == "Ciao, Ada!"


def test_dev_sees_a_change_that_comes_while_the_app_is_still_loading(house: House) -> None:
    slowly = "import pathlib, time\npathlib.Path('loading').touch()\ntime.sleep(1)\n"
    (house.folder / "app.py").write_text(slowly + APP)
    process = house.start("dev", "app.py")
    house.until((house.folder / "loading").exists, "the loading of the app")

    (house.folder / "app.py").write_text(APP.replace("Hello, ", "Good evening, "))
    house.until_logged("app.py changed; starting again")

    house.until(lambda: greeting_of(house) == "Good evening, Ada!", "the new greeting", 20)
    assert house.end(process) == 0


def test_the_child_of_dev_goes_when_its_parent_is_killed(house: House) -> None:
    process = house.serve(command="dev")

    process.send_signal(signal.SIGKILL)
    with process:
        process.wait()

    # The request may meet the child while it stops: the command then tries again for as long as this says.
    house.env["REGISTA_TIMEOUT_SECONDS"] = "5"
    house.until(
        lambda: house.run("jobs", "list", "--url", house.url).returncode == 6, "the end of the child", 20
    )


def test_dev_passes_a_sighup_on_to_its_orchestrator(house: House) -> None:
    clients = house.folder / "clients.toml"
    clients.write_text('[ada]\ntoken = "t-of-ada"\n')
    house.set(CLIENTS_CONFIG_PATH=str(clients))
    process = house.serve(command="dev")
    assert house.run("whoami", CLIENT_TOKEN="t-of-bob").returncode == 1

    clients.write_text('[ada]\ntoken = "t-of-ada"\n[bob]\ntoken = "t-of-bob"\n')
    process.send_signal(signal.SIGHUP)

    house.until(lambda: house.run("whoami", CLIENT_TOKEN="t-of-bob").returncode == 0, "bob's coming in")
    assert process.poll() is None
    assert house.end(process) == 0


def test_a_worker_survives_sighup(house: House) -> None:
    house.serve()
    worker = house.start("worker", "app.py")
    house.until_logged("connected")

    worker.send_signal(signal.SIGHUP)
    house.until_logged("SIGHUP: a worker has nothing to read again")

    assert greeting_of(house) == "Hello, Ada!"
    assert house.end(worker) == 0


def test_two_orchestrators_do_not_share_a_file(house: House) -> None:
    house.serve()

    second = house.start("serve", "app.py", "--port", "0")
    assert second.wait(25) == 1

    assert "Traceback" not in house.logs()
    second.communicate()


def test_a_worker_drains_on_sigterm(house: House) -> None:
    slow = (
        APP
        + '\n@worker.task("nobody_can")\nasync def sleep(params):\n    import asyncio\n    await asyncio.sleep(2)\n'
    )
    (house.folder / "app.py").write_text(slow)
    house.serve()
    worker = house.start("worker", "app.py")
    job_id = house.said("jobs", "run", "lonely").strip()
    with SyncClient(connection=Connection(url=house.url, state_dir=str(house.folder / ".regista"))) as client:
        house.until(
            lambda: [a.state for a in client.get(job_id).attempts] == ["started"], "the start of the task"
        )

    assert house.end(worker) == 0  # after the seconds that the task still needs

    assert house.run("jobs", "watch", job_id, "--timeout", "5").returncode == 0


TWO_WORKERS = """

gpu = Worker("gpu", queues=["q-gpu"])
gpu.task("draw")(lambda params: None)
"""


def test_an_orchestrator_on_any_port_is_found_in_its_directory(house: House) -> None:
    for name in ("REGISTA_URL", "ORCHESTRATOR_URL", "API_PORT"):
        del house.env[name]
    process = house.start("serve", "app.py", "--port", "0", "--json")
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    assert (house.folder / ".regista" / "url").read_text().strip() == url

    house.start("worker", "app.py")
    done = house.run("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait", "--timeout", "8")
    assert done.returncode == 0, house.logs()
    assert f"{url} reachable" in house.said("doctor") or "reachable" in house.said("doctor")

    assert house.end(process) == 0
    assert not (house.folder / ".regista" / "url").exists()
    said = (house.folder / "0-serve.log").read_text()
    assert said.count('"new store at .regista/jobs.db"') == said.count('"action": "stopped"') == 1
    assert url not in said  # the greeting has told it


def test_single_workers_of_an_app_are_run(house: House) -> None:
    house.serve("--storage", "memory")
    (house.folder / "two.py").write_text(APP + TWO_WORKERS)

    house.start("worker", "two.py:gpu")
    house.until_logged("connected to")
    (worker,) = json.loads(house.said("workers", "list", "--json"))["items"]
    assert worker["skills"] == ["draw"]

    wrong = house.run("worker", "two.py", "--worker", "cpu")
    assert (wrong.returncode, wrong.stderr.splitlines()[-1]) == (
        1,
        "regista: cannot use app two.py: it has no worker named 'cpu'; its workers: crew, gpu",
    )


def test_dev_ends_where_no_change_of_a_file_could_help(house: House) -> None:
    house.serve("--storage", "memory")
    taken = house.run("dev", "app.py")
    assert (taken.returncode, "address already in use" in taken.stderr) == (1, True)

    other = House(house.folder)
    try:
        other.serve("--storage", "sqlite:jobs.db")
        # Ten seconds of it are the patience with an owner who may be leaving.
        owned = house.run("dev", "app.py", "--port", "0", "--storage", "sqlite:jobs.db", patience_s=40)
    finally:
        other.close()
    assert (owned.returncode, "is owned by" in owned.stderr) == (1, True)
    assert "waiting for a change" not in taken.stderr + owned.stderr


def test_a_worker_that_is_let_in_nowhere_says_what_it_had_and_what_to_do(house: House) -> None:
    house.serve("--storage", "memory")
    house.start("worker", "app.py", "--dir", "elsewhere")
    house.until_logged("HTTP 401: no token was sent.*WORKER_TOKEN.*--dir")
    house.set(WORKER_TOKEN="not-this-one")
    house.start("worker", "app.py")
    house.until_logged("HTTP 401: it does not know the token that was sent")

    done = house.run("jobs", "list", "--url", house.url.replace("http:", "https:"))
    assert (done.returncode, "it speaks http, not https" in done.stderr) == (6, True)


def test_a_check_without_an_orchestrator_says_that_nobody_was_asked(house: House) -> None:
    done = house.run("blueprints", "check", "app.py", "--json")
    told = json.loads(done.stdout)

    assert done.returncode == 0
    assert {item["live_jobs"] for item in told["items"]} == {None}
    assert "live jobs were not looked at" in told["note"]
