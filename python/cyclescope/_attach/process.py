"""What Linux tells of another process, without touching it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

POLL_SECONDS = 0.02

VERSION = re.compile(r"/(?:lib)?python3\.(\d+)")


class Process:
    """Another process of this machine."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder = Path(f"/proc/{pid}")

    @property
    def is_alive(self) -> bool:
        """False once it has ended, also if nobody has asked for its exit status yet."""
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            return True
        return self._state not in ("Z", "X")

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped, as by SIGSTOP or in a debugger, until someone has it go on."""
        return self._state in ("T", "t")

    @property
    def minor_version(self) -> int | None:
        """The version of its Python, as 14 for 3.14; None if that cannot be told."""
        # The program itself, or the library that it is linked to.
        mapped = VERSION.findall(self._read("maps")) or VERSION.findall(self._link("exe"))
        return int(mapped[0]) if mapped else None

    @property
    def is_readable(self) -> bool:
        """Whether its memory may be looked at, as far as the files of the system show it."""
        return self._link("exe") != ""

    @property
    def user(self) -> int | None:
        """The number of the user whose process it is."""
        found = re.search(r"^Uid:\s+\d+\s+(\d+)", self._read("status"), re.MULTILINE)
        return None if found is None else int(found[1])

    @property
    def group(self) -> int | None:
        """The number of the group whose process it is."""
        found = re.search(r"^Gid:\s+\d+\s+(\d+)", self._read("status"), re.MULTILINE)
        return None if found is None else int(found[1])

    def sees(self, path: str) -> bool:
        """False if a file or folder is known to be another there, or none, as in a container."""
        try:
            return os.path.samefile(f"{self._folder}/root{path}", path)
        except PermissionError:
            return True
        except OSError:
            return False

    @property
    def refuses_debugging(self) -> str | None:
        """How it was started so that nobody can attach to it, or None."""
        if re.search(r"(^|\0)PYTHON_DISABLE_REMOTE_DEBUG=[^\0]", self._read("environ")):
            return "PYTHON_DISABLE_REMOTE_DEBUG is set there"
        if re.search(r"\0-X\0?disable[-_]remote[-_]debug\0", self._read("cmdline")):
            return "it was started with -X disable-remote-debug"
        return None

    @contextlib.contextmanager
    def locked(self, seconds: float) -> Iterator[bool]:
        """Have no other command ask it meanwhile. False if one still does after so many seconds.

        The lock is on its folder of the system, so that nothing is left behind.
        """
        deadline = time.monotonic() + seconds
        try:
            folder = os.open(self._folder, os.O_RDONLY)
        except OSError:
            yield True  # it has ended, which the caller finds out
            return
        try:
            while not _locked(folder) and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
            yield _locked(folder)
        finally:
            os.close(folder)

    @property
    def _state(self) -> str | None:
        """The letter by which the system calls its state."""
        state = re.search(r"^State:\s+(\w)", self._read("status"), re.MULTILINE)
        return None if state is None else state[1]

    def _read(self, name: str) -> str:
        try:
            return (self._folder / name).read_text("utf-8", errors="replace")
        except OSError:
            return ""

    def _link(self, name: str) -> str:
        try:
            return os.readlink(self._folder / name)
        except OSError:
            return ""


def _locked(folder: int) -> bool:
    """Lock a folder, also if it is locked already by the same descriptor."""
    # Not on all systems, and attaching is for Linux.
    import fcntl

    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # such locks are not known here
    return True


def may_trace() -> bool:
    """Whether this process has CAP_SYS_PTRACE."""
    status = Path("/proc/self/status").read_text("utf-8")
    found = re.search(r"^CapEff:\s+([0-9a-f]+)", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> 19 & 1)


def yama_scope() -> int:
    """How much the security module Yama restricts whom a process may look at; 0 for not at all."""
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text("utf-8"))
    except (OSError, ValueError):
        return 0


def why_refused(process: Process) -> str:
    """Why permission is refused, and what to do."""
    name = f"this user may not inspect process {process.pid}"
    scope = yama_scope()
    if process.user is not None and process.user != os.geteuid() and not may_trace():
        return (
            f"{name}, which belongs to user {process.user}: run the command as that user, or as "
            "root (sudo)"
        )
    if scope == 3:
        return (
            f"{name}: Yama forbids it to all users until the machine is restarted "
            "(kernel.yama.ptrace_scope is 3)"
        )
    if scope > 0 and not may_trace():
        return (
            f"{name}: Yama restricts it (kernel.yama.ptrace_scope is {scope}). Run the command as "
            "root (sudo), with the capability CAP_SYS_PTRACE, or set that to 0 (sudo sysctl "
            "kernel.yama.ptrace_scope=0)"
        )
    return (
        f"{name}: it lacks the capability CAP_SYS_PTRACE. In a container, start it with "
        "--cap-add=SYS_PTRACE, or run the command on the host or in the container of the process; "
        "elsewhere, run it as root (sudo)"
    )


NEXT_TIME = (
    "Start the program with CYCLESCOPE_SIGNAL=USR2 and `import cyclescope` next time; then "
    "`kill -USR2 PID` makes it write a report. Without the setting, that signal may end the program"
)
"""What to do if nobody can look into a process."""


def other_version(process: Process) -> str | None:
    """What to do if the process has another version of Python than this one; else None."""
    minor = process.minor_version
    if minor is None or minor == sys.version_info.minor:
        return None
    if minor < 14:
        return (
            f"process {process.pid} runs Python 3.{minor}, but attaching needs Python 3.14 or "
            f"later. {NEXT_TIME}"
        )
    return (
        f"process {process.pid} runs Python 3.{minor}, and this is Python "
        f"3.{sys.version_info.minor}: both must be the same version. Run the command with the "
        f"version of the process: python3.{minor} -m cyclescope attach {process.pid}. If "
        f"cyclescope is not installed for it, set PYTHONPATH={package_folder().parent}"
    )


def package_folder() -> Path:
    """The folder of this package."""
    return Path(__file__).absolute().parents[1]
