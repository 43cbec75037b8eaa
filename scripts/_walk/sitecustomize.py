"""Loaded by walk.py into the processes it observes: records which functions of the package run while a marker file exists."""

import os
import sys
import threading
import time
from types import FrameType
from typing import Any

_folder, _role = os.environ.get("WALK_DIR"), os.environ.get("WALK_ROLE", "process")
_ANONYMOUS = ("<module>", "<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
_calls: dict[tuple[str, str], int] = {}
_recording = False


def _record(frame: FrameType, event: str, arg: Any) -> None:
    if _recording and event == "call":
        code = frame.f_code
        start = code.co_filename.rfind("/regista/")
        if start >= 0 and code.co_name not in _ANONYMOUS:
            key = (code.co_filename[start + len("/regista/") :], code.co_qualname)
            _calls[key] = _calls.get(key, 0) + 1


def _follow_marker(folder: str) -> None:
    global _recording
    while True:
        wanted = os.path.exists(f"{folder}/recording")
        if _recording and not wanted:
            with open(f"{folder}/{_role}.part", "w") as file:
                file.writelines(f"{path}\t{name}\t{count}\n" for (path, name), count in _calls.items())
            os.rename(f"{folder}/{_role}.part", f"{folder}/{_role}.tsv")
            _calls.clear()
        _recording = wanted
        time.sleep(0.02)


if _folder:
    threading.setprofile(_record)
    sys.setprofile(_record)
    threading.Thread(target=_follow_marker, args=[_folder], daemon=True).start()
