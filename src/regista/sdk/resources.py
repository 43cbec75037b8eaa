"""Resources: what this machine has. Only the standard library, and NVML where it is installed."""

import contextlib
import functools
import logging
import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..model.worker import Gpu

log = logging.getLogger("regista.worker")

_GIB = 1024**3
#: Where Linux says how much memory there is, and how much of it our control group may use.
_MEMINFO = Path("/proc/meminfo")
_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")
_CGROUP_CPU = Path("/sys/fs/cgroup/cpu.max")
#: What NVML says where there is simply no card.
_NO_DRIVER = ("NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded")


class Resources(Struct, frozen=True):
    """What tasks may ask for. 0 means: unknown."""

    cpu_cores: float = 0.0
    ram_gb: float = 0.0
    disk_gb: float = 0.0
    gpus: tuple[Gpu, ...] = ()


@functools.cache
def detect_resources() -> Resources:
    """What there is, found out once. Whatever cannot be found out is left at 0; never raises."""
    return Resources(cpu_cores=cpu_cores(), ram_gb=ram_gb(), disk_gb=disk_gb(), gpus=gpus())


def cpu_cores() -> float:
    """The cores that this process may use: its affinity, and the quota of its container."""
    try:
        cores = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        cores = float(os.cpu_count() or 0)
    quota, _, period = _read(_CGROUP_CPU).partition(" ")
    if _is_number(quota) and _is_number(period.strip()) and int(period):
        cores = min(cores, int(quota) / int(period))
    return round(cores, 2)


def ram_gb() -> float:
    """The memory of the machine, or of the container if that is less."""
    total = 0
    for line in _read(_MEMINFO).splitlines():
        name, _, size = line.partition(":")
        number = size.split()[:1]
        if name == "MemTotal" and number and _is_number(number[0]):
            total = int(number[0]) * 1024
    limit = _read(_CGROUP_MEMORY).strip()
    if _is_number(limit) and 0 < int(limit) < (total or int(limit) + 1):
        total = int(limit)
    return round(total / _GIB, 2)


def disk_gb(path: str = ".") -> float:
    """What is free where we stand."""
    try:
        return round(shutil.disk_usage(path).free / _GIB, 1)
    except OSError:
        return 0.0


def gpus() -> tuple[Gpu, ...]:
    """The graphics cards that NVML lists; none where `pynvml` is not installed or finds no driver."""
    try:
        nvml: Any = import_module("pynvml")
    except ModuleNotFoundError as error:
        log.debug("no graphics cards: %s", error)
        return ()
    except Exception as error:  # noqa: BLE001  # half installed, which may fail in any way
        _warn("cannot list the graphics cards: %s", error)
        return ()
    try:
        nvml.nvmlInit()
    except Exception as error:  # noqa: BLE001  # NVML's own errors
        if type(error).__name__ in _NO_DRIVER:
            log.debug("no graphics cards: %s", error)
        else:
            _warn("cannot list the graphics cards: %s", error)
        return ()
    try:
        found = [_gpu(nvml, number) for number in range(nvml.nvmlDeviceGetCount())]
        return tuple(card for card in found if card is not None)
    except Exception as error:  # noqa: BLE001  # it cannot even count them
        _warn("cannot list the graphics cards: %s", error)
        return ()
    finally:
        with contextlib.suppress(Exception):  # a driver that went away has nothing to be shut down
            nvml.nvmlShutdown()


def _gpu(nvml: Any, number: int) -> Gpu | None:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        name = nvml.nvmlDeviceGetName(handle)
        vram_gb = round(nvml.nvmlDeviceGetMemoryInfo(handle).total / _GIB, 1)
        return Gpu(model=name.decode() if isinstance(name, bytes) else str(name), vram_gb=vram_gb)
    except Exception as error:  # noqa: BLE001  # a card that cannot be asked cannot be used; the others can
        _warn("a graphics card cannot be used: number %d: %s", number, error)
        return None


def _warn(words: str, *told: object) -> None:
    log.warning(words, *told, extra={"action": "detect_gpus"})


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _is_number(text: str) -> bool:
    """What `int` reads; `isdigit` alone is also true of small raised figures."""
    return text.isascii() and text.isdigit()
