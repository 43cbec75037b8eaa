"""schedules.toml: what the documents print is accepted, and a mistake names its line."""

from pathlib import Path

import pytest

from regista.config.schedules_file import ScheduleFile, read_schedules
from regista.errors import ConfigError
from regista.schedules.schedule import CatchUp, Overlap

PRINTED = """
[hourly_sweep]
blueprint = "sweep"
interval_seconds = 3600
input_data = { dry_run = false }
dispatch_timeout = 60           # optional, as are result_timeout, security, metadata
metadata = { owner = "ops" }
[monday_report]
blueprint = "report"
weekly_days = ["mon"]           # or monthly_dates = [1, 15]
time = "07:30"                  # daily_at = "07:30" alone means every day
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "schedules.toml"
    path.write_text(text)
    return path


def test_the_file_of_the_documents_is_accepted(tmp_path: Path) -> None:
    schedules = read_schedules(write(tmp_path, PRINTED), "UTC")

    assert list(schedules) == ["hourly_sweep", "monday_report"]
    sweep = schedules["hourly_sweep"]
    assert (sweep.blueprint, sweep.interval_seconds, sweep.dispatch_timeout) == ("sweep", 3600, 60)
    assert sweep.input_data == {"dry_run": False}


def test_policies_and_zones_are_read(tmp_path: Path) -> None:
    text = '[a]\nblueprint="b"\ncron="@daily"\ntimezone="Europe/Madrid"\noverlap="skip"\ncatch_up="all"\n'
    schedule = read_schedules(write(tmp_path, text), "UTC")["a"]

    assert (schedule.overlap, schedule.catch_up, schedule.timezone) == (
        Overlap.SKIP,
        CatchUp.ALL,
        "Europe/Madrid",
    )


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('blueprint = "b"\ncron = "61 * * * *"', r"line 15: x\.cron: expected a cron line .wrong minute"),
        ('blueprint = "b"\ninterval_seconds = 0', r"line 15: x\.interval_seconds: expected int >= 1, got 0"),
        ('blueprint = "b"\ninterval_secs = 5', r"line 15: x\.interval_secs: expected interval_seconds"),
        ('daily_at = "1:00"', r"line 13: x: expected blueprint = "),
        ('blueprint = "b"', r"line 13: x: expected exactly one of"),
        ('blueprint = "b"\ndaily_at = 7', r"line 15: x\.daily_at"),
        (
            'blueprint = "b"\ndaily_at = "7:00"\noverlap = "never"',
            r"line 16: x\.overlap: expected one of allow, skip",
        ),
        ('blueprint = "b"\ndaily_at = "7:00"\ntimezone = "Mars"', r"line 16: x\.timezone"),
    ],
)
def test_a_mistake_is_named_by_its_line(tmp_path: Path, lines: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_schedules(write(tmp_path, f"{PRINTED}\n[x]\n{lines}\n"), "UTC")


def test_what_is_no_table_and_what_is_no_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 1: x: expected a table"):
        read_schedules(write(tmp_path, "x = 3"), "UTC")
    with pytest.raises(ConfigError, match="a name of letters"):
        read_schedules(write(tmp_path, '["a b"]\nblueprint = "b"\ndaily_at = "7:00"'), "UTC")
    with pytest.raises(ConfigError, match="expected TOML"):
        read_schedules(write(tmp_path, "[["), "UTC")
    with pytest.raises(ConfigError, match="a file that can be read"):
        read_schedules(tmp_path / "nowhere.toml", "UTC")


def test_a_blueprint_that_nobody_registered_is_named_by_its_line(tmp_path: Path) -> None:
    file = ScheduleFile(write(tmp_path, PRINTED), "UTC")

    file.require(["sweep", "report"])
    with pytest.raises(
        ConfigError, match=r"line 9: monday_report\.blueprint: expected a registered blueprint"
    ):
        file.require(["sweep"])
