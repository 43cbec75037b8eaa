"""The command line against a running orchestrator and a worker, each a process of its own."""

import json
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import House

pytestmark = [pytest.mark.slow, pytest.mark.timeout(40)]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One orchestrator and one worker for all of these tests."""
    house = House(tmp_path_factory.mktemp("house"))
    house.serve()
    house.start("worker", "app.py")
    house.until_logged("connected")
    yield house
    house.close()


# -- exit codes ------------------------------------------------------------------------------------


def test_a_finished_job_is_exit_code_0_and_its_result_is_printed(house: House) -> None:
    done = house.run("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait")

    assert done.returncode == 0, done.stderr
    first, result = done.stdout.splitlines()
    assert first.startswith("finished  ")
    assert json.loads(result) == "Hello, Ada!"
    assert "task_finished" in done.stderr  # the way there, beside the data
    assert "\033" not in done.stdout + done.stderr


def test_a_failed_job_is_exit_code_1(house: House) -> None:
    done = house.run("jobs", "run", "doomed", "--wait")

    assert done.returncode == 1
    assert "it was never going to work" in done.stdout


def test_a_quarantined_job_is_exit_code_4_and_says_what_to_do(house: House) -> None:
    done = house.run("jobs", "run", "broken", "--wait")

    assert done.returncode == 4, done.stderr
    assert "the file is broken" in done.stdout
    job_id = done.stdout.split()[1]
    assert f"regista jobs retry {job_id}" in done.stderr
    assert house.run("jobs", "fail", job_id, "--reason", "enough").returncode == 0
    assert house.run("jobs", "watch", job_id).returncode == 1


def test_a_job_that_outlasts_the_timeout_is_exit_code_5_and_goes_on(house: House) -> None:
    done = house.run("jobs", "run", "lonely", "--wait", "--timeout", "0.3")

    assert done.returncode == 5, done.stderr
    assert done.stdout.startswith("waiting_for_worker  ")
    assert "the job goes on" in done.stderr


def test_a_cancelled_job_is_exit_code_3(house: House) -> None:
    job_id = house.said("jobs", "run", "lonely").strip()
    watching = house.start("jobs", "watch", job_id)
    assert house.said("jobs", "cancel", job_id, "--reason", "enough").startswith("cancelled")

    assert watching.communicate(timeout=10)[0].splitlines()[-1].startswith("cancelled")
    assert watching.returncode == 3
    again = house.run("jobs", "cancel", job_id)
    assert (again.returncode, again.stderr) == (1, f"regista: job {job_id}: already cancelled\n")


def test_no_orchestrator_is_exit_code_6(house: House) -> None:
    done = house.run("jobs", "list", REGISTA_URL="http://127.0.0.1:9")

    assert done.returncode == 6
    assert done.stderr.startswith(
        "regista: no orchestrator answers at http://127.0.0.1:9: connection refused."
    )
    assert len(done.stderr.splitlines()) == 1


def test_wrong_usage_is_exit_code_2_and_a_refusal_is_1(house: House) -> None:
    assert house.run("jobs", "run").returncode == 2
    assert house.run("jobs", "run", "greet", "--input", "nonsense").returncode == 2
    unknown = house.run("jobs", "run", "nothing")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("regista: no blueprint named 'nothing'; registered: ")


def test_ctrl_c_ends_the_watching_and_not_the_job(house: House) -> None:
    job_id = house.said("jobs", "run", "ask").strip()
    watching = house.start("jobs", "watch", job_id)
    assert watching.stdout is not None
    while "approval_requested" not in watching.stdout.readline():
        pass
    watching.send_signal(signal.SIGINT)

    with watching:
        assert watching.wait(10) == 130
    assert f"the job goes on; `regista jobs watch {job_id}` follows it" in house.logs()
    assert json.loads(house.said("jobs", "show", job_id, "--json"))["status"] == "waiting_for_human"


# -- input, keys, people ---------------------------------------------------------------------------


def test_input_comes_from_a_file_or_a_pipe_and_a_key_names_one_job(house: House) -> None:
    (house.folder / "input.json").write_text('{"name": "ExpiryGrace"}')

    first = house.said("jobs", "run", "greet", "--input", "@input.json", "--key", "grace")
    again = house.run(
        "jobs", "run", "greet", "--input", "-", "--key", "grace", input='{"name": "ExpiryGrace"}'
    )
    other = house.run("jobs", "run", "greet", "--input", "{}", "--key", "grace")

    assert again.stdout == first
    assert (other.returncode, "used before with another body" in other.stderr) == (1, True)


@pytest.mark.parametrize(("verb", "code", "result"), [("approve", 0, "yes"), ("reject", 1, "no")])
def test_a_person_decides(house: House, verb: str, code: int, result: str) -> None:
    job_id = house.said("jobs", "run", "ask").strip()

    house.said("jobs", verb, job_id, "--comment", "because")

    done = house.run("jobs", "watch", job_id)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, f'"{result}"')
    assert "because" in house.said("jobs", "history", job_id)


def test_a_quarantined_job_is_retried_with_data_and_a_job_is_forked(house: House) -> None:
    job_id = house.run("jobs", "run", "broken", "--wait").stdout.split()[1]
    assert house.said("jobs", "retry", job_id, "--data", '{"mended": true}').startswith(
        ("running", "waiting")
    )
    assert house.run("jobs", "watch", job_id, "--json").returncode == 4

    greeted = house.said("jobs", "run", "greet", "--input", '{"name": "Ada"}').strip()
    forked = house.said("jobs", "fork", greeted, "--input", '{"name": "Eve"}', "--wait")
    assert "Hello, Eve!" in forked


# -- JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        'jobs run greet --input {"name":"Ada"} --wait',
        'jobs run greet --input {"name":"Ada"}',
        "jobs list --limit 3",
        "jobs list --status finished --blueprint greet",
        "jobs show JOB",
        "jobs history JOB",
        "jobs explain JOB",
        "workers list",
        "blueprints list",
        "blueprints graph greet",
        "blueprints check app.py",
        "queues",
        "doctor",
        "version",
    ],
)
def test_json_is_one_document(house: House, command: str) -> None:
    job_id = house.said("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--key", "json").strip()

    said = house.said(*command.replace("JOB", job_id).split(), "--json")

    assert isinstance(json.loads(said), dict)


def test_json_can_be_asked_for_in_the_environment(house: House) -> None:
    assert json.loads(house.said("jobs", "list", REGISTA_JSON="true"))["items"]


def test_watching_in_json_is_one_event_per_line(house: House) -> None:
    job_id = house.said("jobs", "run", "greet", "--input", '{"name": "Ada"}').strip()

    lines = [json.loads(line) for line in house.said("jobs", "watch", job_id, "--json").splitlines()]

    assert [line["type"] for line in lines][:2] == ["job_created", "state_started"]
    assert lines[-1]["type"] == "job_finished"
    assert [line["seq"] for line in lines if "seq" in line] == list(range(1, len(lines) + 1))


def test_the_job_object_has_the_members_of_the_contract(house: House) -> None:
    job = json.loads(house.said("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait", "--json"))

    assert list(job) == [
        *("id", "blueprint", "version", "status", "state", "input", "data", "result", "error", "progress"),
        *("waiting_for", "attempts", "created_at", "updated_at", "finished_at", "search_attributes"),
        *("parent_id", "bill", "client"),
    ]
    assert (job["status"], job["result"], job["error"]) == ("finished", "Hello, Ada!", None)


# -- tables and drawings ---------------------------------------------------------------------------


def test_lists_are_plain_tables(house: House) -> None:
    house.said("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait")

    head, first, *_ = house.said("jobs", "list", "--blueprint", "greet").splitlines()
    assert head.split() == ["ID", "BLUEPRINT", "STATUS", "STATE", "AGE", "CLIENT"]  # an operator sees whose
    assert first.split()[1:4] == ["greet", "finished", "done"]
    assert "say_hello" in house.said("workers", "list")
    assert "lonely" in house.said("blueprints", "list")
    assert house.said("queues").startswith("QUEUE")


def test_jobs_are_found_counted_and_exported_by_a_query(house: House) -> None:
    run = house.run("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait", "--json")
    job_id = json.loads(run.stdout)["id"]

    found = house.run("jobs", "list", "-q", f"JobId = '{job_id}' AND ExecutionStatus = 'Completed'", "--json")
    counted = house.run("jobs", "count", "-q", "BlueprintName = 'greet'", "--by", "ExecutionStatus")
    exported = house.run("history", "export", "-q", f"JobId = '{job_id}'")
    filed = house.run("history", "export", "-q", f"JobId = '{job_id}'", "-o", "story.jsonl")
    refused = house.run("jobs", "list", "-q", "Jobid = 'x'")

    assert [job["id"] for job in json.loads(found.stdout)["items"]] == [job_id]
    assert counted.stdout.splitlines()[0].split() == ["EXECUTIONSTATUS", "COUNT", "MEAN", "P50", "P95"]
    lines = [json.loads(line) for line in exported.stdout.splitlines()]
    assert lines[0]["job"]["id"] == job_id
    assert lines[-1] == {"end": {"jobs": 1, "events": len(lines) - 2}}
    assert filed.returncode == 0
    assert (house.folder / "story.jsonl").read_text() == exported.stdout
    assert refused.returncode == 1
    assert "did you mean JobId?" in refused.stderr


def test_a_graph_is_drawn_as_text_or_into_a_file(house: House) -> None:
    assert house.said("blueprints", "graph", "greet").startswith('digraph "greet"')
    assert house.said("blueprints", "graph", "greet", "--app", "app.py").startswith('digraph "greet"')
    house.said("blueprints", "graph", "greet", "--output", "greet.dot")
    assert (house.folder / "greet.dot").read_text().startswith("digraph")
    assert house.run("blueprints", "graph", "nothing").returncode == 1


def test_explain_says_that_nobody_can_do_it(house: House) -> None:
    job_id = house.said("jobs", "run", "lonely").strip()

    assert "nobody_can" in house.said("jobs", "explain", job_id)


def test_check_says_which_jobs_can_move_to_a_new_version(house: House) -> None:
    house.said("jobs", "run", "ask")
    new = (house.folder / "app.py").read_text().replace('ask.handler_for("start"', 'ask.handler_for("begin"')
    (house.folder / "new.py").write_text(new)

    said = house.said("blueprints", "check", "new.py")

    assert "ok       greet" in said
    assert "blocked  ask" in said
    assert house.run("blueprints", "check", "new.py", "--strict").returncode == 1
    assert house.run("blueprints", "check", "app.py", "--strict").returncode == 0
    away = house.run("blueprints", "check", "app.py", "--strict", "--url", "http://127.0.0.1:1")
    assert away.returncode == 6
    assert "cannot migrate: this version has no state start" in said
    led = (house.folder / "app.py").read_text().replace('"no"', '"refused"')
    (house.folder / "led.py").write_text(led)
    assert "cannot migrate: this version has no state no" in house.said("blueprints", "check", "led.py")
    (house.folder / "wrong.py").write_text(new.replace('"reject": "no"', '"reject": "nowhere"'))
    wrong = house.run("blueprints", "check", "wrong.py", "--offline")
    assert (wrong.returncode, "nowhere" in wrong.stdout) == (1, True)


def test_a_worker_is_drained(house: House) -> None:
    extra = house.start("worker", "app.py", "--queue", "elsewhere")
    house.until(lambda: house.said("workers", "list").count("crew") == 2, "a second worker")
    workers = json.loads(house.said("workers", "list", "--json"))["items"]
    (worker,) = [each["id"] for each in workers if each["queues"] == ["elsewhere"]]

    house.said("workers", "drain", worker)

    assert "draining" in house.said("workers", "list")
    assert house.end(extra) == 0


# -- tokens, doctor, console script ----------------------------------------------------------------


def test_tokens_are_made_with_mode_600_and_found_by_the_other_commands(house: House) -> None:
    for name in ("client.token", "worker.token"):
        assert stat.S_IMODE((house.folder / ".regista" / name).stat().st_mode) == 0o600

    stranger = house.run("jobs", "list", "--dir", "elsewhere")
    assert (stranger.returncode, "Set CLIENT_TOKEN" in stranger.stderr) == (1, True)
    token = (house.folder / ".regista" / "client.token").read_text().strip()
    assert house.run("jobs", "list", "--dir", "elsewhere", CLIENT_TOKEN=token).returncode == 0
    assert token not in house.logs()


def test_the_doctor_is_content_here_and_says_what_to_do_elsewhere(house: House) -> None:
    well = house.said("doctor")
    assert "FAIL" not in well

    ill = house.run("doctor", REGISTA_URL="http://127.0.0.1:9", API_HOST="0.0.0.0", WATCHER_LIMIT="many")
    assert ill.returncode == 1
    assert "→ correct or unset WATCHER_LIMIT" in ill.stdout


def test_the_program_regista_is_installed(house: House) -> None:
    program = Path(sys.executable).with_name("regista")

    done = subprocess.run([program, "version"], capture_output=True, text=True, timeout=10)

    assert done.stdout.startswith("regista ")


def test_a_command_whose_reader_has_enough_ends_quietly(house: House) -> None:
    done = house.shell(
        'regista jobs history $(regista jobs run greet --input \'{"name": "Ada"}\') | head -1 >/dev/null; true'
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_answers_within_a_second(house: House) -> None:
    run = ("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait", "--json")
    both = [(took_s(house, "version"), took_s(house, *run)) for _ in range(3)]

    # A command that asks nobody takes a sixth of a second: where it takes longer, the machine is busy.
    nothing, something = min(pair[0] for pair in both), min(pair[1] for pair in both)
    assert something < max(1.0, 6 * nothing)


def took_s(house: House, *command: str) -> float:
    began = time.monotonic()
    house.said(*command)
    return time.monotonic() - began


def test_show_names_the_task_and_keeps_the_token_and_an_empty_bill_to_itself(house: House) -> None:
    greeted = json.loads(house.said("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait", "--json"))
    shown = house.said("jobs", "show", greeted["id"])
    assert shown.splitlines()[-2].split()[:3] == ["ATTEMPT", "TASK", "STATE"]
    assert shown.splitlines()[-1].split()[1] == "say_hello"
    assert "bill" not in shown  # the worker has no price

    asked = house.said("jobs", "run", "ask").strip()
    assert "token" in json.loads(house.said("jobs", "show", asked, "--json"))["waiting_for"]["detail"]
    assert "token" not in house.said("jobs", "show", asked)
