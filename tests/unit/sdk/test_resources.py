"""What a machine has."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regista.model.worker import Gpu
from regista.sdk import resources


def test_this_machine_has_cores_and_memory_and_is_asked_once() -> None:
    found = resources.detect_resources()

    assert found.cpu_cores > 0
    assert found.disk_gb > 0
    if sys.platform == "linux":
        assert found.ram_gb > 0
    assert resources.detect_resources() is found


def test_the_quota_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpu").write_text("50000 100000\n")
    (tmp_path / "memory").write_text(f"{512 * 1024**2}\n")
    monkeypatch.setattr(resources, "_CGROUP_CPU", tmp_path / "cpu")
    monkeypatch.setattr(resources, "_CGROUP_MEMORY", tmp_path / "memory")

    assert resources.cpu_cores() == 0.5
    assert resources.ram_gb() == 0.5


def test_no_quota_is_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "max").write_text("max 100000\n")
    monkeypatch.setattr(resources, "_CGROUP_CPU", tmp_path / "max")
    monkeypatch.setattr(resources, "_CGROUP_MEMORY", tmp_path / "absent")

    assert resources.cpu_cores() >= 1


def test_a_directory_that_is_not_there_has_no_space() -> None:
    assert resources.disk_gb("/nowhere/at/all") == 0.0


class Nvml(SimpleNamespace):
    """The part of `pynvml` that is used, over a list of cards."""

    def __init__(self, *cards: tuple[Any, Any], broken: bool = False) -> None:
        super().__init__(cards=cards, broken=broken, open=0)

    def nvmlInit(self) -> None:
        if self.broken:
            raise OSError("no driver")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> tuple[Any, int]:
        card: tuple[Any, int] = self.cards[number]
        return card

    def nvmlDeviceGetName(self, card: tuple[Any, int]) -> Any:
        return card[0]

    def nvmlDeviceGetMemoryInfo(self, card: tuple[Any, int]) -> Any:
        return SimpleNamespace(total=card[1])


def test_graphics_cards_are_listed_where_nvml_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(("A100", 80 * 1024**3), (b"T4", 16 * 1024**3))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

    assert resources.gpus() == (Gpu("A100", 80.0), Gpu("T4", 16.0))
    assert nvml.open == 0


@pytest.mark.parametrize("nvml", [Nvml(broken=True), Nvml(("odd", None)), None])
def test_whatever_is_wrong_with_the_cards_there_are_none(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

    assert resources.gpus() == ()


def test_files_of_an_odd_machine_say_nothing_and_break_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "odd"
    monkeypatch.setattr(resources, "_MEMINFO", odd)
    monkeypatch.setattr(resources, "_CGROUP_MEMORY", odd)
    monkeypatch.setattr(resources, "_CGROUP_CPU", odd)
    for content in (
        b"",
        b"MemTotal:",
        b"MemTotal: many kB",
        b"\xff\xfe",
        "\u00b2 \u00b2".encode(),
        b"5 0",
        b"-1",
    ):
        odd.write_bytes(content)
        assert resources.ram_gb() >= 0
        assert resources.cpu_cores() > 0


def test_a_half_installed_nvml_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text("raise AttributeError('half')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert resources.gpus() == ()


def test_cards_whose_driver_goes_away_meanwhile_are_still_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Leaving(Nvml):
        def nvmlShutdown(self) -> None:
            raise OSError("it is gone")

    monkeypatch.setitem(sys.modules, "pynvml", Leaving(("A100", 80 * 1024**3)))
    assert resources.gpus() == (Gpu("A100", 80.0),)


def test_a_card_that_is_lost_is_told_of_and_the_others_are_listed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(
        sys.modules, "pynvml", Nvml(("A100", 80 * 1024**3), ("lost", None), ("T4", 16 * 1024**3))
    )

    assert resources.gpus() == (Gpu("A100", 80.0), Gpu("T4", 16.0))
    assert "a graphics card cannot be used: number 1" in caplog.text


@pytest.mark.parametrize(
    ("name", "told"), [("NVMLError_DriverNotLoaded", False), ("NVMLError_Unknown", True)]
)
def test_a_machine_without_cards_is_nothing_to_tell_and_a_driver_that_does_not_fit_is(
    name: str, told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Misfit(Nvml):
        def nvmlInit(self) -> None:
            raise type(name, (Exception,), {})("Driver/library version mismatch")

    monkeypatch.setitem(sys.modules, "pynvml", Misfit())
    assert resources.gpus() == ()
    assert ("version mismatch" in caplog.text) is told
