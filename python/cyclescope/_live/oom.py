"""A post-mortem of each out-of-memory error, before its exception unwinds the stack."""

from __future__ import annotations

import _thread
import gc
import os
import pickle
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from cyclescope import _native, _ranks, _teller
from cyclescope._files import write_whole
from cyclescope._live import reading
from cyclescope._live.imports import Waiting
from cyclescope._live.postmortem import Examiner, PostMortem
from cyclescope._live.reading import Torch
from cyclescope._live.redaction import shown_error
from cyclescope._live.verdict import as_text
from cyclescope._off import OFF
from cyclescope._selection import StrPath
from cyclescope._settings import settings

SECONDS = 10.0
"""How long a post-mortem may take; what there is no time for is left out, and said."""

MAX_REPORTS = 5
"""A program that catches the error and tries again with less gets so many; the rest is counted."""

LOG_SECONDS = 1.0
"""How long the program waits for its log handlers."""


class OomWatch:
    """Waits for out-of-memory errors. Stop it with :meth:`stop`, or use it as a context manager."""

    def __init__(self, report_dir: Path | None, seconds: float) -> None:
        self.report_dir = report_dir
        """Where they go; None until there is one, if it was to be a temporary folder."""
        self.reports: list[Path] = []
        """The texts that were written; JSON and page lie beside each."""
        self.last: PostMortem | None = None
        """What was found last."""
        self.errors = 0
        """How many out-of-memory errors there were, those without a report too."""
        self.state = "off" if OFF else "waiting for PyTorch to be imported"
        """``installed``, or what is missing; ``off`` with ``CYCLESCOPE_OFF`` set."""
        self._seconds = seconds
        self._running = not OFF
        self._waiting = Waiting(self._install)

    @property
    def is_running(self) -> bool:
        """True until it is stopped."""
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
            _teller.logger.warning("on_oom has no effect: %s", self.state)
            return
        _watches.append(self)
        self.state = "installed when the program initialises CUDA"
        try:
            # At once if CUDA is in use, else when it is: to attach an observer initialises it.
            torch.cuda._lazy_call(_attach)
        except Exception as error:
            self.state = f"PyTorch refused: {error}"
            _teller.logger.warning("on_oom has no effect: %s", self.state)

    def examine(self, torch: Torch, device: int, requested: int, limit: int, free: int) -> None:
        """Look, and write what was found."""
        self.errors += 1
        if self.errors > MAX_REPORTS:
            return
        deadline = time.monotonic() + self._seconds
        examiner = Examiner(torch, device, requested, limit, free, self._seconds)
        path = self._free_path()
        found = examiner.examine(lambda early: _write(path, early))
        if reading.quietly(torch._C._cuda_isHistoryEnabled):
            if _native.redacts():
                found.left_out.append("PyTorch's memory snapshot: it names folders")
            elif time.monotonic() < deadline:
                _dump(torch, path.with_suffix(".pickle"))
            else:
                found.left_out.append("PyTorch's memory snapshot: no time left")
        _write(path, found)
        if time.monotonic() < deadline:
            _write_page(path, found)
        # The program is to have the memory that this is about.
        found.heap = found.history = None
        self.last = found
        self.reports.append(path)
        _log(f"out of memory on {found.device}: {found.verdict}: {found.headline} · {path}")

    def _free_path(self) -> Path:
        if self.report_dir is None:
            self.report_dir = Path(tempfile.mkdtemp(prefix="cyclescope-"))
        self.report_dir.mkdir(parents=True, exist_ok=True)
        number = self.errors
        while True:
            # No dots but that of the suffix, as a machine's name may have some.
            stem = f"oom-{_ranks.stem()}-{number}".replace(".", "_")
            path = self.report_dir / f"{stem}.txt"
            if not path.exists():
                return path
            number += 1


def on_oom(
    report_dir: StrPath | None = None, *, seconds: float = SECONDS, redact: bool = False
) -> OomWatch:
    """Write a post-mortem of each CUDA out-of-memory error, before its exception unwinds.

    While everything is still there, it says how much memory was free, reserved and allocated, in
    pieces of what size; what unreachable cycles hold that a collection would have freed; which
    containers keep autograd graphs; what is largest; what grew, if a :class:`LeakMonitor` runs;
    and, in the first line, why memory ran out, where the numbers prove it. Text, JSON
    and a page, and PyTorch's own memory snapshot if the program records the history of allocations.

    PyTorch need not be imported yet, and CUDA is not initialised by this. PyTorch's observers
    cannot be taken away again; after ``stop()`` this one does nothing.

    Args:
        report_dir: Where post-mortems go; by default as the :func:`settings` have it, or else a
            new folder among the temporary files, made when there is something to write.
        seconds: How long one may take; what there is no time for is left out, and said so.
        redact: As for :func:`warn_tensor_cycles`; PyTorch's snapshot is then not written, as it
            names folders.

    Raises:
        ValueError: If ``seconds`` is not positive, or a setting is wrong.
        OSError: If ``report_dir`` cannot be written to.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be a positive number, not {seconds!r}")
    configured = settings()
    if redact:
        _native.redact()
    chosen = configured.report_dir if report_dir is None else Path(report_dir)
    if OFF or chosen is None:
        return OomWatch(None, seconds)
    chosen.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=chosen):
        pass
    return OomWatch(chosen.absolute(), seconds)


_watches: list[OomWatch] = []
_attached = False
_busy = False


def _attach() -> None:
    """Attach the one observer of this process. PyTorch may call this as it initialises CUDA."""
    global _attached
    torch = sys.modules.get("torch")
    if torch is None:
        return
    try:
        if not _attached:
            torch._C._cuda_attach_out_of_memory_observer(_observe)
            _attached = True
        state = "installed"
    except Exception as error:
        state = f"PyTorch refused: {error}"
    for watch in _watches:
        watch.state = state


def _observe(device: int, requested: int, limit: int, free: int) -> None:
    """Called by the allocator, which holds no lock then, on whatever thread asked for memory.

    Nothing may leave it: PyTorch would throw that in place of its own error.
    """
    global _busy
    if _busy or not _watches:
        return
    _busy = True
    # A collection now would run finalizers, and free what is to be looked at.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        torch: Any = sys.modules["torch"]
        for watch in list(_watches):
            watch.examine(torch, device, requested, limit, free)
    except KeyboardInterrupt:
        _thread.interrupt_main()  # again, when PyTorch's error has been raised
    except BaseException as error:
        _log(f"cyclescope: the post-mortem failed: {shown_error(error)}")
    finally:
        if was_enabled:
            gc.enable()
        _busy = False


def _write(path: Path, found: PostMortem) -> None:
    write_whole(path.with_suffix(".json"), found.to_json())
    write_whole(path, as_text(found))


def _write_page(path: Path, found: PostMortem) -> None:
    """The page is the least of it: without one the text and the JSON are there."""
    try:
        write_whole(path.with_suffix(".html"), found.to_html())
    except (OSError, ValueError) as error:
        _log(f"cyclescope: no page of the post-mortem {path}: {error}")


def _dump(torch: Torch, path: Path) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    with open(unfinished, "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
    unfinished.replace(path)


def _log(message: str) -> None:
    """Log on another thread: a handler is the program's, and may want anything, for ever."""
    try:
        thread = threading.Thread(
            target=_teller.logger.error, args=("%s", message), name="cyclescope-oom", daemon=True
        )
        thread.start()
        thread.join(LOG_SECONDS)
    except RuntimeError:
        pass  # the program is ending


def _after_fork_in_child() -> None:
    global _busy
    _busy = False
    _watches.clear()


if not OFF and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
