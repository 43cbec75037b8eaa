"""`regista dev`: an app while it is written. Orchestrator and workers in one process, and again at a change."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from ..errors import ConfigError, StorageError
from ..sdk.main import Terminal
from . import exit_codes
from .app import AppError, files_of, load_app, refuse_absent
from .entry import debug_wanted
from .errors import tell
from .output import Output, output_for
from .serve import config_for, perform

#: How often the files are looked at.
_LOOK_S = 0.25
#: What a process that was told to stop may take beyond its own grace, before it is killed.
_LAST_WORDS_S = 10.0

#: How the child tells the reloader that it is not the app's fault: the port is taken, or the store.
_NO_CHANGE_HELPS = 70

#: Path → when it was written, and its size.
Stamps = dict[Path, tuple[int, int]]


def dev(args: argparse.Namespace) -> int:
    """Serve the app with its workers; with reload, in a process of its own that is started again."""
    if args.no_reload:
        return _perform_once(args)
    config = config_for(args)  # what is wrong with the settings is said once, here
    refuse_absent(args.app)
    port = config.api_port or _free_port(config.api_host)
    return Reloader(args, port, config.stop_grace_s + _LAST_WORDS_S).run()


def _perform_once(args: argparse.Namespace) -> int:
    config = config_for(args)
    if args.parent is not None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until we serve: what a reload reads is read anyway
        _leave_with(args.parent, config.stop_grace_s + _LAST_WORDS_S)
    broken: list[Path] = []
    try:
        app = load_app(args.app)
    except AppError as error:
        broken = [Path(error.app).resolve()]
        raise
    finally:
        if args.report_files is not None:
            _report(args.report_files, {*files_of(args.app), *broken})
    if not app.workers:
        app.need_blueprints()
    try:
        return perform(args, config, app, with_workers=True)
    except (OSError, StorageError, ConfigError) as error:
        if args.report_files is None:
            raise
        tell(error, debug=debug_wanted(args))
        return _NO_CHANGE_HELPS


def _report(fd: int, files: Iterable[Path]) -> None:
    """Tell the reloader which files to watch; a file that does not load yet is one of them."""
    with os.fdopen(fd, "w") as pipe:
        pipe.writelines(f"{path}\n" for path in files)


def _leave_with(parent: int, patience_s: float) -> None:
    """Stop when the reloader is gone, however and whenever it went: nobody else would ever stop this process.

    From before the app is loaded, and by the reloader's own word for who it is: it may be gone already. What cannot
    be stopped (a thread that never returns) is left behind after the patience.
    """

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience_s)
        os._exit(exit_codes.FAILED)

    threading.Thread(target=look, name="regista-dev-parent", daemon=True).start()


def _free_port(host: str) -> int:
    """A port that is kept over reloads."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


class Reloader:
    """Runs the app in a child process, and starts another one whenever a file of the app has changed.

    The child is told to stop as `kill` would tell it: tasks get their grace, jobs stay in the file, and the
    next child goes on with them. A child that ends by itself (an error in the app) is started again at the
    next change; one that cannot start whatever the app says (a port that is taken) ends us too.
    """

    def __init__(self, args: argparse.Namespace, port: int, patience_s: float) -> None:
        self._asked = args
        self._port = port
        self._patience_s = patience_s
        self._screen: Output = output_for(args)
        self._told = False
        self._child: subprocess.Popen[bytes] | None = None
        self._terminal = Terminal()

    def run(self) -> int:
        """Until Ctrl-C or SIGTERM, or until no change of a file could help."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._pass_on)
        files = [Path(self._asked.app).resolve()]
        while not self._told:
            # Looked at before the child reads them: what changes while it starts is a change, too.
            before = stamps(files)
            child, reported = self._start()
            files = reported or files  # a child that dies early reports nothing
            changed = self._watch(child, {**stamps(files), **before})
            self._end(child)
            if child.returncode == _NO_CHANGE_HELPS:
                return exit_codes.FAILED
            if changed:
                names = ", ".join(sorted(path.name for path in changed))
                self._screen.notice(f"{names} changed; starting again")
        return exit_codes.OK

    def _stop(self, number: int, frame: object) -> None:
        self._told = True

    def _pass_on(self, number: int, frame: object) -> None:
        """The orchestrator reads its files again; without a terminal, where there was one, this is the end."""
        if self._terminal.gone:
            self._told = True
        elif self._child is not None:
            self._child.send_signal(number)

    def _start(self) -> tuple["subprocess.Popen[bytes]", list[Path]]:
        reading, writing = os.pipe()
        command = [*_command(self._asked), "--port", str(self._port), "--report-files", str(writing)]
        command += ["--parent", str(os.getpid())]
        child = self._child = subprocess.Popen(command, pass_fds=[writing])
        os.close(writing)
        with os.fdopen(reading) as pipe:  # ends when the child has reported, or has died
            return child, [Path(line) for line in pipe.read().splitlines()]

    def _watch(self, child: "subprocess.Popen[bytes]", before: Stamps) -> set[Path]:
        """Wait until a file has changed; empty when we were told to stop."""
        mourned = False
        while not self._told:
            time.sleep(_LOOK_S)
            if child.poll() == _NO_CHANGE_HELPS:
                return set()
            if child.poll() is not None and not mourned:
                mourned = True
                if not self._told:
                    self._screen.notice("the app has stopped; waiting for a change of its files")
            now = stamps(before)
            if now != before:
                return {path for path in before if now.get(path) != before[path]}
        return set()

    def _end(self, child: "subprocess.Popen[bytes]") -> None:
        if child.poll() is None:
            child.terminate()
        try:
            child.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _command(args: argparse.Namespace) -> list[str]:
    """The same command for the child, which does not reload."""
    command = [sys.executable, "-m", "regista", "dev", args.app, "--no-reload"]
    for flag in ("host", "storage", "dir", "log_level"):
        if (value := getattr(args, flag)) is not None:
            command += [f"--{flag.replace('_', '-')}", value]
    return command + [f"--{flag}" for flag in ("json", "debug") if getattr(args, flag)]


def stamps(paths: Iterable[Path]) -> Stamps:
    """What can be seen of each file without reading it. A missing one is told apart from every other."""
    found: Stamps = {}
    for path in paths:
        try:
            stat = path.stat()
            found[path] = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            found[path] = (0, -1)  # an editor is between removing and writing; or it is gone
    return found
