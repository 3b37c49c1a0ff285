"""Run code of ours in another process by ``sys.remote_exec`` (PEP 768), and wait for its answer."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cyclescope import _native
from cyclescope._attach.process import (
    NEXT_TIME,
    POLL_SECONDS,
    Process,
    other_version,
    package_folder,
    why_refused,
)

SECONDS = 30.0
"""How long the process may take, by default."""

LEAST_SECONDS = 0.1
"""How long the process has at least if another command had its turn first."""

WAIT_SECONDS = 0.5
"""How often a process that is waited for is looked at."""

SETTLE_SECONDS = 0.2
"""How long files stay for a process that may be about to read them."""

NO_SAFE_POINT = (
    "process {pid} did not answer within {seconds:g} s. Most likely its main thread did not reach "
    "a safe point, because it runs C code (say, a sleep). The request is withdrawn. If a "
    "signal interrupts that code, the handler's exception may be lost. See its standard error, "
    "try a longer --timeout, or start the process with CYCLESCOPE_SIGNAL=USR2 next time"
)

UNWRITTEN = (
    "process {pid} could not write its answer into {folder}. Most likely the disk is full, or the "
    "process has a limit on the size of files (ulimit -f). If the disk is full, set TMPDIR to a "
    "folder with room and try again"
)

ENDED = "process {pid} has ended"
STOPPED = (
    "process {pid} is stopped (by SIGSTOP, Ctrl-Z or a debugger) and cannot answer: continue it "
    "with kill -CONT {pid}"
)

BUSY = (
    "another `cyclescope attach` was still asking process {pid} after {seconds:g} s: try again "
    "when it has ended"
)


START = """\
import _thread, sys
start = getattr(sys.modules.get("__original_module__thread") or _thread, "start_new_thread")
monkey = sys.modules.get("gevent.monkey")
if monkey is not None:
 start = monkey.get_original("_thread", "start_new_thread")
start(exec, (compile({read!r}, "<cyclescope>", "exec"), {{}}))
"""
"""What starts a real thread, also where eventlet or gevent has put others in their place."""


class AttachError(Exception):
    """The process cannot be asked, or did not answer. The message says why and what to do."""


def ask(pid: int, what: Sequence[str] | str, *, timeout: float, **request: Any) -> dict[str, str]:
    """What a process answers, by name: ``cycles``, ``heap`` and ``why`` as JSON.

    Raises:
        AttachError: If it does not answer.
    """
    process = Process(pid)
    _check(process)
    # There is room for one request: a second one would take the place of the first.
    deadline = time.monotonic() + timeout
    with process.locked(timeout) as is_ours:
        if not is_ours:
            raise AttachError(BUSY.format(pid=pid, seconds=timeout))
        left = max(deadline - time.monotonic(), LEAST_SECONDS)
        return _ask(process, what, round(left, 1) or LEAST_SECONDS, request)


def wait(pid: int, seconds: float) -> None:
    """Wait while a process goes on.

    Raises:
        AttachError: If it ends meanwhile.
    """
    process, deadline = Process(pid), time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if not process.is_alive:
            raise AttachError(f"process {pid} has ended meanwhile")
        time.sleep(min(left, WAIT_SECONDS))


def _ask(
    process: Process, what: Sequence[str] | str, timeout: float, request: dict[str, Any]
) -> dict[str, str]:
    folder = Path(tempfile.mkdtemp(prefix="cyclescope-attach-"))
    try:
        _hand_over(folder, process)
        for path in (str(folder), _native.__file__):
            if not process.sees(path) and process.is_alive:
                raise AttachError(_unseen(process, path))
        script = _script(folder, {**request, "what": what})
        try:
            _send(process, script)
            return _await(process, folder, timeout)
        except (KeyboardInterrupt, SystemExit):
            _withdraw(process, folder)
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check(process: Process) -> None:
    """Refuse what cannot succeed, before anything is done."""
    if not sys.platform.startswith("linux"):
        raise AttachError("attach works on Linux only")
    if process.pid <= 0:
        raise AttachError(f"{process.pid} is not a process ID")
    if process.pid == os.getpid():
        raise AttachError("a process cannot attach to itself: call cyclescope.heap()")
    if not process.is_alive:
        raise AttachError(
            f"no process {process.pid}: it has ended, or it runs in a container and has another "
            "process ID here"
        )
    if (reason := other_version(process)) is not None:
        raise AttachError(reason)
    if sys.version_info < (3, 14):
        raise AttachError(
            f"this is Python 3.{sys.version_info.minor}, but attaching needs Python 3.14 or later. "
            f"{NEXT_TIME}"
        )
    if process.is_stopped:
        raise AttachError(STOPPED.format(pid=process.pid))
    if not process.is_readable:
        raise AttachError(_why_refused(process))
    if (reason := process.refuses_debugging) is not None:
        raise AttachError(_disabled(process, reason))


def _disabled(process: Process, reason: str) -> str:
    return (
        f"process {process.pid} does not allow attaching: {reason}. Start it without that, or with "
        "CYCLESCOPE_SIGNAL=USR2, which works without attaching"
    )


def _unseen(process: Process, path: str) -> str:
    return (
        f"process {process.pid} does not see {path}: it is in a container, or has file systems of "
        "its own. Run the command there (docker exec, kubectl exec, nsenter), as its user"
    )


def _hand_over(folder: Path, process: Process) -> None:
    """Let the process write into the folder if it belongs to another user."""
    if process.user not in (None, os.geteuid()):
        os.chown(folder, process.user or 0, -1 if process.group is None else process.group)
        os.chmod(folder, 0o700)


def _script(folder: Path, request: dict[str, Any]) -> Path:
    source = Path(__file__).with_name("injected.py").read_text("utf-8")
    request |= {
        "folder": str(folder),
        "library": _native.__file__,
        "package": str(package_folder()),
    }
    path, rest = folder / "script.py", folder / "injected.py"
    rest.write_text(f"{source}\n\nanswer({request!r})\n", "utf-8")
    # The main thread compiles and runs as little as can be.
    # No collection may begin by itself there: it would run finalizers of the program on that
    # thread, and free what is to be reported.
    read = (
        "import gc\nours = {'enabled': gc.isenabled()}\ngc.disable()\n"
        f"try:\n with open({str(rest)!r}) as file: source = file.read()\n"
        ' exec(compile(source, "<cyclescope>", "exec"), ours)\nexcept OSError:\n pass\n'
        "finally:\n if ours.pop('enabled', False): gc.enable()"
    )
    path.write_text(START.format(read=read), "utf-8")
    for each in path, rest:
        each.chmod(0o644)
    return path


def _send(process: Process, script: Path | str) -> None:
    try:
        sys.remote_exec(process.pid, str(script))  # type: ignore[attr-defined, unused-ignore]
    except PermissionError:
        raise AttachError(_why_refused(process)) from None
    except (RuntimeError, OSError) as error:
        raise AttachError(_why_not(process, error)) from None


def _why_refused(process: Process) -> str:
    return ENDED.format(pid=process.pid) if _is_ending(process) else why_refused(process)


def _is_ending(process: Process) -> bool:
    """Whether the process ends within a moment: until then it fails in many ways."""
    deadline = time.monotonic() + 0.5
    while process.is_alive and time.monotonic() < deadline:
        time.sleep(0.01)
    return not process.is_alive


def _why_not(process: Process, error: Exception) -> str:
    if _is_ending(process):
        return ENDED.format(pid=process.pid)
    text = str(error)
    if "not enabled in the remote process" in text:
        return _disabled(process, "its Python was built --without-remote-debug")
    if "not enabled" in text:
        return (
            "this Python cannot attach to others: PYTHON_DISABLE_REMOTE_DEBUG is set here, or it "
            "was built --without-remote-debug. Run the command without that"
        )
    if "PyRuntime" in text:
        return (
            f"process {process.pid} does not run Python 3.{sys.version_info.minor}: no interpreter "
            "was found in it"
        )
    if "main thread" in text or "running interpreter" in text:
        return (
            f"Python does not find the main thread of process {process.pid}, which is starting or "
            "ending (try again), or has more than one interpreter (which nobody can attach to)"
        )
    return f"cannot attach to process {process.pid}: {text}"


def _await(process: Process, folder: Path, timeout: float) -> dict[str, str]:
    deadline = time.monotonic() + timeout
    result = folder / "result"
    while not result.exists():
        if not process.is_alive:
            raise AttachError(f"process {process.pid} has ended before it answered")
        if (folder / "failed").exists():
            raise AttachError(UNWRITTEN.format(pid=process.pid, folder=folder))
        if time.monotonic() >= deadline:
            _give_up(process, folder, timeout)
            # It has begun to work, and must not be left with half of its files.
            deadline += timeout
        time.sleep(POLL_SECONDS)
    state, _, reason = result.read_text("utf-8").partition("\n")
    if state == "off":
        raise AttachError(f"CYCLESCOPE_OFF is set in process {process.pid}: nothing was inspected")
    if state != "ok":
        raise AttachError(f"process {process.pid} could not answer: {reason}")
    names = ("cycles", "heap", "why")
    return {each: (folder / each).read_text("utf-8") for each in names if (folder / each).exists()}


def _withdraw(process: Process, folder: Path) -> bool:
    """Withdraw the request; False if the process has begun to answer it."""
    try:
        os.close(os.open(folder / "started", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    with contextlib.suppress(AttachError):
        # Have it read an empty script instead: it would complain of one that is gone.
        _send(process, os.devnull)
    time.sleep(SETTLE_SECONDS)
    return True


def _give_up(process: Process, folder: Path, timeout: float) -> None:
    """Withdraw the request and say so, unless the process has begun to answer it."""
    if not _withdraw(process, folder):
        return
    reason = STOPPED if process.is_stopped else NO_SAFE_POINT
    raise AttachError(reason.format(pid=process.pid, seconds=timeout))
