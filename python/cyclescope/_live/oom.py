"""Post-mortems of out-of-memory errors, written before the exception unwinds the stack."""

from __future__ import annotations

import _thread
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from cyclescope import _log, _native, _ranks, _system
from cyclescope._files import (
    check_writable,
    exists,
    folder_named,
    make_folder,
    temporary_folder,
    within,
    write_whole,
)
from cyclescope._imported import imported_torch
from cyclescope._live import reading
from cyclescope._live.imports import Waiting
from cyclescope._live.postmortem import Examiner
from cyclescope._live.reading import Torch
from cyclescope._live.redaction import shown_error
from cyclescope._native import PostMortem as PostMortem
from cyclescope._off import OFF
from cyclescope._selection import StrPath, redact_if
from cyclescope._settings import check_number, settings
from cyclescope._threads import Flag, run_aside

SECONDS = 10.0
"""How long a post-mortem may take; the parts that do not fit are listed as not examined."""

MAX_REPORTS = 5
"""Maximum number of post-mortems, for programs that catch the error and retry."""

LOG_SECONDS = 1.0
"""How long the program waits for its log handlers."""


class OomWatch:
    """Writes post-mortems until :meth:`stop` is called. Also a context manager."""

    def __init__(self, report_dir: Path | None, seconds: float) -> None:
        self.report_dir = report_dir
        """Folder of the post-mortems; None until a temporary folder is created."""
        self.reports: list[Path] = []
        """The text files written so far, each with a JSON and an HTML file beside it."""
        self.last: PostMortem | None = None
        """The latest post-mortem."""
        self.errors = 0
        """Number of out-of-memory errors, including those without a post-mortem."""
        self.state = "off" if OFF else "waiting for PyTorch to be imported"
        """``installed``, or what it is waiting for; ``off`` with ``CYCLESCOPE_OFF`` set."""
        self._seconds = seconds
        self._running = not OFF
        self._waiting = Waiting(self._install)

    @property
    def is_running(self) -> bool:
        """True until :meth:`stop` is called."""
        return self._running

    def stop(self) -> None:
        """Write no more post-mortems. Stopping twice does nothing."""
        self._running = False
        self._waiting.stop()
        if self in _watches:
            _watches.remove(self)

    def __enter__(self) -> OomWatch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<OomWatch {self.state}, {len(self.reports)} reports>"

    def _install(self, torch: Torch) -> None:
        if not reading.has_cuda(torch) or not hasattr(
            torch._C, "_cuda_attach_out_of_memory_observer"
        ):
            self.state = "this PyTorch is built without CUDA"
            _log.warning("on_oom has no effect: %s", self.state)
            return
        _watches.append(self)
        self.state = "installed when the program initialises CUDA"
        try:
            # At once if CUDA is in use, else when it is: to attach an observer initialises it.
            torch.cuda._lazy_call(_attach)
        except Exception as error:
            self.state = f"PyTorch raised an error: {error}"
            _log.warning("on_oom has no effect: %s", self.state)

    def examine(self, torch: Torch, device: int, requested: int, limit: int, free: int) -> bool:
        """Examine the error and write the post-mortem; False if there were too many already."""
        self.errors += 1
        if self.errors > MAX_REPORTS:
            return False
        deadline = _system.monotonic() + self._seconds
        examiner = Examiner(torch, device, requested, limit, free, self._seconds)
        path = self._free_path()
        examiner.examine(lambda early: _write(path, early))
        if reading.quietly(torch._C._cuda_isHistoryEnabled):
            if _native.redacts():
                examiner.leave_out("PyTorch's memory snapshot: it contains folder names")
            elif _system.monotonic() < deadline:
                _dump(torch, path.with_suffix(".pickle"))
            else:
                examiner.leave_out("PyTorch's memory snapshot: no time left")
        found = examiner.found
        _write(path, found)
        if _system.monotonic() < deadline:
            _write_page(path, examiner)
        self.last = found
        self.reports.append(path)
        facts = {
            "event": "out-of-memory",
            "device": found.device,
            "verdict": found.verdict,
            "headline": found.headline,
            "advice": found.advice,
            "report": str(path),
        }
        _tell(f"out of memory on {found.device}: {found.verdict}: {found.headline} · {path}", facts)
        return True

    def share(self, other: OomWatch) -> None:
        """Take over what another watch has just written into the folder that this one has too."""
        self.errors += 1
        self.report_dir = other.report_dir
        self.last = other.last
        self.reports.append(other.reports[-1])

    def _free_path(self) -> Path:
        if self.report_dir is None:
            self.report_dir = temporary_folder()
        make_folder(self.report_dir)
        number = self.errors
        while True:
            # Host names may contain dots, which `with_suffix` would take for a suffix.
            stem = f"oom-{_ranks.stem()}-{number}".replace(".", "_")
            path = within(self.report_dir, f"{stem}.txt")
            if not exists(path):
                return path
            number += 1


def on_oom(
    report_dir: StrPath | None = None, *, seconds: float = SECONDS, redact: bool = False
) -> OomWatch:
    """Write a post-mortem of each CUDA out-of-memory error, before its exception unwinds.

    The first line says why memory ran out, if the numbers prove it. Below follow free, reserved
    and allocated memory and its fragmentation; the garbage in reference cycles, which a collection
    would have freed; the containers that keep autograd graphs; the largest tensors; and growing
    tensors, if a :class:`LeakMonitor` runs. Each post-mortem is written as text, JSON and HTML,
    with PyTorch's memory snapshot beside it if PyTorch records memory history.

    PyTorch need not be imported yet, and CUDA is not initialised. PyTorch cannot remove an
    observer, so after ``stop()`` this one stays attached and does nothing. Several watches of one
    folder, such as that of ``cyclescope run --oom`` and the program's own, write each post-mortem
    once.

    Args:
        report_dir: Folder for post-mortems; by default as in the :func:`settings`, or else a new
            temporary folder, created when there is something to write.
        seconds: How long a post-mortem may take. Parts that do not fit are listed as not examined.
        redact: See :func:`warn_tensor_cycles`. PyTorch's snapshot is then not written, because it
            contains folder names.

    Raises:
        ValueError: If ``seconds`` is not a positive number, or a setting is invalid.
        OSError: If ``report_dir`` is not writable.
    """
    check_number("seconds", seconds)
    configured = settings()
    redact_if(redact)
    chosen = configured.report_dir if report_dir is None else folder_named(report_dir)
    if OFF or chosen is None:
        return OomWatch(None, seconds)
    check_writable(chosen)
    return OomWatch(Path(_system.absolute(chosen)), seconds)


_watches: list[OomWatch] = []
_attached = False
_busy = False


def _attach() -> None:
    """Attach the observer of this process. PyTorch may call this while it initialises CUDA."""
    global _attached
    torch = imported_torch()
    if torch is None:
        return
    try:
        if not _attached:
            torch._C._cuda_attach_out_of_memory_observer(_observe)
            _attached = True
        state = "installed"
    except Exception as error:
        state = f"PyTorch raised an error: {error}"
    for watch in _watches:
        watch.state = state


def _observe(device: int, requested: int, limit: int, free: int) -> None:
    """Called by the allocator, without a lock, on the thread that requested memory.

    It must not raise: PyTorch would throw that exception in place of its own error.
    """
    global _busy
    if _busy or not _watches:
        return
    _busy = True
    # A collection now would run finalizers and free the garbage to be examined.
    was_enabled = _system.is_collection_enabled()
    _system.disable_collection()
    try:
        torch: Any = sys.modules["torch"]
        wrote: dict[Path | None, OomWatch] = {}
        for watch in list(_watches):
            folder = watch.report_dir
            if folder in wrote:
                watch.share(wrote[folder])
            elif watch.examine(torch, device, requested, limit, free):
                wrote[folder] = watch
    except KeyboardInterrupt:
        _thread.interrupt_main()  # raise it again after PyTorch's error
    except BaseException as error:
        _tell(f"cyclescope: the post-mortem failed: {shown_error(error)}")
    finally:
        if was_enabled:
            _system.enable_collection()
        _busy = False


def _write(path: Path, found: PostMortem) -> None:
    write_whole(path.with_suffix(".json"), found.to_json())
    write_whole(path, found.to_text())


def _write_page(path: Path, examiner: Examiner) -> None:
    """Write the page. If that fails, the text and the JSON remain."""
    try:
        write_whole(path.with_suffix(".html"), examiner.page())
    except (OSError, ValueError) as error:
        _tell(f"cyclescope: cannot write the page of the post-mortem {path}: {error}")


def _dump(torch: Torch, path: Path) -> None:
    unfinished = path.with_name(f".{path.name}.{_system.getpid()}.part")
    with _system.open_file(unfinished, "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
    _system.replace(unfinished, path)


def _tell(message: str, facts: dict[str, str] | None = None) -> None:
    """Log on another thread, because a log handler of the program may block."""
    logged = Flag()

    def log() -> None:
        try:
            _log.error("%s", message, fields=facts)
        finally:
            logged.set()

    try:
        run_aside(log, "cyclescope-oom")
        logged.wait(LOG_SECONDS)
    except RuntimeError:
        pass  # the program is ending


def _after_fork_in_child() -> None:
    global _busy
    _busy = False
    _watches.clear()


if not OFF and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
