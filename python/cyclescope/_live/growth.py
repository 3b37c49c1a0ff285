"""Finds groups of tensors that grow with the number of steps."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from pathlib import Path

from cyclescope import _fields, _log, _native, _ranks
from cyclescope._devices import Devices
from cyclescope._files import exists, make_folder, within, write_whole
from cyclescope._handlers import is_of_handler
from cyclescope._imported import imported_torch
from cyclescope._live import reading
from cyclescope._live.allocator import line_of_block, pinned_bytes
from cyclescope._live.reading import Torch
from cyclescope._live.redaction import shown_error
from cyclescope._native import Growth as Growth
from cyclescope._off import NOTE, OFF
from cyclescope._selection import StrPath, redact_if
from cyclescope._settings import check_every, check_min_bytes, check_number, settings
from cyclescope._system import monotonic, now

MAX_SHARE = 0.02
"""The part of the program's time that samples may take."""

FIRST_SAMPLES = 16
MORE_SAMPLES = 32
MORE_SECONDS = 1.0
"""So many samples are taken at the asked interval, and more of them if all took no longer: a leak
in a program of 200 short steps is to be told as well."""

RAREST = 16
"""Samples become rarer by this factor at most: a monitor that never samples finds nothing."""

JITTER = 4
"""An interval is shortened by up to this part of it, so that what comes and goes in a rhythm of its
own is not met in the same phase again and again."""

MIB = 2**20


@dataclass(frozen=True)
class Cost:
    """The cost of a :class:`LeakMonitor` itself.

    Attributes:
        samples: Number of samples taken.
        seconds: Time spent on samples.
        share: That time as a fraction of the time since the monitor was started.
        every: Current number of steps between samples; it is raised, up to 16 times, while they
            take too long.
    """

    samples: int
    seconds: float
    share: float
    every: int


class LeakMonitor:
    """Finds groups of live tensors that grow with the number of steps.

    Call :meth:`step` at the end of every training step. Every N steps, the monitor samples the
    live tensors and their autograd graphs, and counts other objects, threads and open files. A
    group that has grown over ten samples and still grows is reported once, on the logger
    ``cyclescope``. A leak that adds nothing in most of the samples
    is found over longer intervals, of 2 to 89 samples. It does not report tensors that exist from
    the first samples on (parameters, optimizer state), are replaced in each step, or stop growing
    (a full cache, a window of fixed length, an averaged copy of the model). Where the program's
    source limits or empties what grows, it is reported only if it goes beyond the limit, or grows
    for ten times as long. Any other cache that takes longer than ten samples to fill looks like a
    leak and is reported; the report is withdrawn when most of the tensors have been released, or
    none has been added for as long as it took to find it.

    Args:
        every: Number of steps between samples; by default 10, or as in the :func:`settings`. With
            two samples for the warm-up, a leak is reported after about ``13 * every`` steps. Longer
            intervals vary by up to a quarter.
        devices: Which memory to check; see :func:`warn_tensor_cycles`.
        min_bytes: Minimum growth of a group of tensors without graphs, in bytes.
        max_share: Fraction of the program's time that samples may take. While they take more, the
            monitor samples less often, up to 16 times, but only after the first 16 samples. The
            bound prevails: where steps are fast, give a larger ``every``.
        redact: See :func:`warn_tensor_cycles`.

    Raises:
        ValueError: If an argument or a setting is invalid.
    """

    def __init__(
        self,
        *,
        every: int | None = None,
        devices: Devices | None = None,
        min_bytes: int = MIB,
        max_share: float = MAX_SHARE,
        redact: bool = False,
    ) -> None:
        configured = settings()
        redact_if(redact)
        self.every = configured.growth_every if every is None else check_every(every)
        """Number of steps between samples."""
        self._asked = self.every
        self._max_share = check_number("max_share", max_share)
        check_min_bytes(min_bytes)
        self._seen = _native.GrowthWatch(configured.devices_or(devices), min_bytes)
        self._steps = 0
        self._next = self.every
        self._began = monotonic()
        self._sampled_at = self._began
        self._seconds = 0.0
        self._samples = 0
        self._running = not OFF
        self._busy = False
        _running.append(self)

    @property
    def found(self) -> list[Growth]:
        """The growing groups, as they were when first reported, without those that have released
        most of it since."""
        return self._seen.found

    @property
    def headline(self) -> str:
        """How much memory has grown, and what explains it, in one line."""
        return self._report().headline

    @property
    def cost(self) -> Cost:
        """The cost of the monitor so far."""
        elapsed = max(monotonic() - self._began, 1e-9)
        return Cost(self._samples, self._seconds, self._seconds / elapsed, self.every)

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._steps

    def step(self) -> list[Growth]:
        """Count a step and, every N steps, take a sample. Returns newly reported groups."""
        # A collection or a pending call in the middle of a step may come here again.
        if not self._running or self._busy:
            return []
        self._busy = True
        try:
            return self._step()
        except BaseException as error:  # Also a panic.
            if is_of_handler(error):
                raise
            # Where memory is short, the next step may have more.
            if not isinstance(error, MemoryError):
                self._running = False
                _log.error("cyclescope: watch_growth stopped: %s", shown_error(error))
            return []
        finally:
            self._busy = False

    def _step(self) -> list[Growth]:
        self._steps += 1
        torch = imported_torch()
        news = _told(self._seen.step(self._steps, self.every, _line_of))
        if self._steps < self._next:
            return news
        if _is_at_work(torch):
            return news  # the next step will do
        started = monotonic()
        in_use = (0, 0) if torch is None else (_allocated(torch), pinned_bytes(torch))
        told, cleared = self._seen.sample(self._steps, self.every, in_use, _line_of)
        news += _told(told)
        for growth, has_stopped in cleared:
            _log.warning(
                "step %d: %s has %s reported at step %d",
                self._steps,
                growth.owner,
                "stopped growing since it was" if has_stopped else "released most of what was",
                growth.step,
                fields=_fields.of_growth(growth, "growth-withdrawn"),
            )
        self._pace(started)
        return news

    def sample(self) -> list[Growth]:
        """Count a step and take a sample now. Otherwise like :meth:`step`."""
        self._next = 0
        return self.step()

    def to_text(self) -> str:
        """The growing groups, one paragraph each, and the number of samples."""
        return self._report().to_text()

    def to_json(self) -> str:
        """The growing groups and their size at each sample, as JSON (``schema`` 1)."""
        return self._report().to_json()

    def to_html(self) -> str:
        """A self-contained HTML page: the growing groups, the advice, and their size by step."""
        return self._report().to_html()

    def _repr_html_(self) -> str:
        return _native.framed(self.to_html())

    def write(self, folder: StrPath) -> Path:
        """Write the report to a folder as HTML, text and JSON, and return the HTML file.

        Raises:
            OSError: If the folder is not writable.
        """
        path = Path(folder)
        make_folder(path)
        # Host names may contain dots, which `with_suffix` would take for a suffix.
        stem = f"growth-{_ranks.stem()}".replace(".", "_")
        page, number = within(path, f"{stem}.html"), 0
        while exists(page):
            number += 1
            page = within(path, f"{stem}-{number}.html")
        write_whole(page.with_suffix(".json"), self.to_json())
        write_whole(page.with_suffix(".txt"), self.to_text())
        write_whole(page, self.to_html())
        return page

    def stop(self) -> None:
        """Stop the monitor. The results stay in :attr:`found`.

        What the reported owners keep is counted once more.
        """
        was_running, self._running = self._running, False
        if self in _running:
            _running.remove(self)
        if was_running and not self._busy and not _is_at_work(imported_torch()):
            try:
                self._seen.end()
            except BaseException as error:
                if is_of_handler(error):
                    raise
                _log.debug("the reported owners were not looked at: %s", shown_error(error))

    def __enter__(self) -> LeakMonitor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<LeakMonitor step {self._steps}, {len(self.found)} found>"

    def _report(self) -> _native.GrowthReport:
        cost = self.cost
        return self._seen.report(
            time=now(),
            steps=self._steps,
            every=self.every,
            samples=cost.samples,
            seconds=cost.seconds,
            share=cost.share,
            next_sample=self._next,
            notes=[] if NOTE is None else [NOTE],
        )

    def _pace(self, started: float) -> None:
        ended = monotonic()
        took, since = ended - started, ended - self._sampled_at
        self._seconds += took
        self._samples += 1
        at_first = MORE_SAMPLES if self._seconds < MORE_SECONDS else FIRST_SAMPLES
        if self._samples >= at_first:
            if took > self._max_share * since:
                self.every = min(2 * self.every, RAREST * self._asked)
            elif took < self._max_share * since / 4:
                self.every = max(self.every // 2, self._asked)
        self._sampled_at = ended
        # Multiplied by the golden ratio, the numbers of the samples are spread evenly.
        part = self._samples * 0.618034 % 1.0
        shorter = int(part * (self.every // JITTER)) if self.every >= RAREST else 0
        self._next = self._steps + self.every - shorter


def _is_at_work(torch: Torch | None) -> bool:
    """True during a backward pass, and while a CUDA graph is recorded: no time to look."""
    return torch is not None and (_native.is_backward_running() or reading.is_capturing(torch))


def _told(news: list[Growth]) -> list[Growth]:
    for growth in news:
        _log.warning(
            "%s", _log.fitting(growth.to_text()), fields=_fields.of_growth(growth, "growth")
        )
    return news


def _line_of(device: str, pointer: int) -> str | None:
    torch = imported_torch()
    return None if torch is None else line_of_block(torch, device, pointer)


def _allocated(torch: Torch) -> int:
    """Bytes in use on all GPUs by PyTorch's count; 0 if it uses none, or does not say."""
    if not reading.is_using_cuda(torch):
        return 0
    stats = (
        reading.quietly(torch._C._cuda_memoryStats, device) or {}
        for device in range(torch.cuda.device_count())
    )
    used = (each.get("allocated_bytes", {}).get("all", {}).get("current", 0) for each in stats)
    return sum(map(int, used))


_running: list[LeakMonitor] = []


def running_report() -> _native.GrowthReport | None:
    """What a running monitor has found, if there is one."""
    return _running[-1]._report() if _running else None


def running_beside(monitor: LeakMonitor) -> LeakMonitor | None:
    """The latest other monitor that runs, if there is one."""
    return next((each for each in reversed(_running) if each is not monitor), None)


def watch_growth(
    *,
    every: int | None = None,
    devices: Devices | None = None,
    min_bytes: int = MIB,
    max_share: float = MAX_SHARE,
    redact: bool = False,
) -> LeakMonitor:
    """Start a :class:`LeakMonitor`. Call its ``step()`` at the end of every training step.

    A monitor that an earlier call has started is stopped, so that nothing is reported twice when a
    cell of a notebook runs again.
    """
    global _started
    monitor = LeakMonitor(
        every=every, devices=devices, min_bytes=min_bytes, max_share=max_share, redact=redact
    )
    earlier, _started = _started, weakref.ref(monitor)
    if earlier is not None and (running := earlier()) is not None:
        running.stop()
    return monitor


_started: weakref.ref[LeakMonitor] | None = None
"""The latest that :func:`watch_growth` has started."""
