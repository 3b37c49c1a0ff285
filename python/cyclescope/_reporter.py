"""The files of a watch: an HTML page per distinct leak, and one JSON file of all for ``merge``."""

from __future__ import annotations

from pathlib import Path

from cyclescope import _log, _native, _ranks
from cyclescope._files import (
    check_writable,
    exists,
    folder_named,
    make_folder,
    temporary_folder,
    within,
    write_whole,
)
from cyclescope._native import CycleReport, LeakTally
from cyclescope._selection import StrPath
from cyclescope._system import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_COMPLETED = 50
"""Maximum number of pages whose timeline is completed when a watch ends."""


MAX_REFRESHED = 1 << 20
"""A larger file of all leaks, in bytes, is brought up to date by new leaks and at the end only."""

MAX_PAGES = 200
"""Maximum number of pages per watch, so that ever new leaks do not fill the disk."""


class Reporter:
    """Writes reports to a folder. Without one, it creates a temporary folder on the first report.

    Raises:
        OSError: If the folder is not writable.
    """

    def __init__(self, folder: StrPath | None) -> None:
        self._number = 0
        self._pages = 0
        self._count = 0
        self._redacts = False
        """What was found has no values of the program."""
        self._last: CycleReport | None = None
        """What the file of all leaks says in the end."""
        self._report: CycleReport | None = None
        self._has_moved = False
        """The folder is new, and does not have the file of all leaks yet."""
        self._written: list[tuple[Path, CycleReport]] = []
        self.also: Callable[[CycleReport], object] | None = None
        """Is given all that was found whenever there is a new leak, on the thread that reports."""
        self.move(folder)

    def move(self, folder: StrPath | None) -> None:
        """Write to this folder from now on.

        Raises:
            OSError: If the folder is not writable.
        """
        path = None if folder is None else folder_named(folder)
        if path is not None:
            check_writable(path)
        self._folder = path
        self._file: Path | None = None
        self._failed = False
        self._has_moved = self._report is not None

    def forget(self, names: list[str]) -> list[str]:
        """Leave out the leaks that these names ignore, and return their signatures."""
        report = self._report
        if report is None or not names:
            return []
        forgotten = _native.ignored(report, names)
        kept = [leak.signature for leak in report.leaks if leak.signature not in forgotten]
        self._report = _native.select(report, kept)
        return forgotten

    def write(self, report: CycleReport) -> Path | None:
        """Write the page of a report and return its path.

        Returns None, and logs an error, if it cannot be written. Also returns None after
        :data:`MAX_PAGES` pages.
        """
        if self._pages == MAX_PAGES:
            return None
        self._hide()
        try:
            self._redacts = _native.redacts()
            merged = [report] if self._report is None else [self._report, report]
            self._report = _native.merge(merged)
            folder = self._ready()
            name = report.leaks[0].signature if report.leaks else "empty"
            page = self._free(folder, f"{name}-{_ranks.stem()}", "html")
            write_whole(page, report.to_html())
            self._pages += 1
            if self._pages == MAX_PAGES:
                _log.warning(
                    "cyclescope has written %d pages to %s, the limit for one watch. "
                    "Further leaks are logged without a page.",
                    MAX_PAGES,
                    folder,
                )
            if len(self._written) < MAX_COMPLETED:
                self._written.append((page, report))
            self._write_file(self._report)
            if self.also is not None:
                self.also(self._report)
            return page
        except (OSError, MemoryError) as error:
            # There may still be enough room for the warning.
            self._complain(error)
            return None

    def seen(self, tallies: list[LeakTally], watch: int | None = None) -> CycleReport | None:
        """One report of all that was found, with its counts; None if there was nothing.

        Args:
            tallies: What the watch has counted.
            watch: The number of the watch while it runs, for each occurrence; else None.
        """
        self._hide()
        report = self._report
        if report is None:
            return None
        if watch is not None:
            report = _native.with_occurrences(report, watch)
        return _native.with_counts(report, tallies)

    def refresh(self, watch: int, tallies: list[LeakTally]) -> None:
        """Bring the file of all leaks up to date while the program runs, if it was written."""
        count = sum(tally.count for tally in tallies)
        if self._failed or not (self._has_moved or (self._file and count != self._count)):
            return
        self._count = count
        try:
            # A large report would hold the interpreter for long, and keep the disk busy.
            if self._file is not None and stat(self._file).st_size > MAX_REFRESHED:
                return
        except OSError:
            return  # the user has removed or moved it
        report = self.seen(tallies, watch)
        if report is None:
            return
        try:
            self._write_file(report)
            # The watch may have ended meanwhile, in another thread.
            if self._last is not None:
                self._write_file(self._last)
        except (OSError, MemoryError) as error:
            self._complain(error)

    def complete(self, watch: int) -> None:
        """Rewrite the pages of leaks that recurred, with all their occurrences."""
        self._hide()
        if self._report is not None:
            self._report = _native.with_occurrences(self._report, watch)
        for page, report in self._written:
            complete = _native.with_occurrences(report, watch)
            if complete.to_json() == report.to_json():
                continue
            try:
                # Do not recreate a page that the user has removed or moved.
                if exists(page):
                    write_whole(page, complete.to_html())
            except OSError as error:
                _log.error("cyclescope could not complete %s: %s", page, error)
                return
        self._written.clear()

    def finish(self, tallies: list[LeakTally]) -> None:
        """Bring the file of all leaks up to date."""
        self._last = report = self.seen(tallies)
        if report is not None:
            try:
                self._write_file(report)
            except (OSError, MemoryError) as error:
                self._complain(error)

    def _hide(self) -> None:
        """Forget what was found before reports were to have no values of the program.

        The watch tells these leaks once more, without them.
        """
        if self._report is not None and not self._redacts and _native.redacts():
            self._report = self._file = None
            self._written.clear()

    def _ready(self) -> Path:
        if self._folder is None:
            self._folder = temporary_folder()
        make_folder(self._folder)
        return self._folder

    def _write_file(self, report: CycleReport) -> None:
        if self._file is None:
            self._file = self._free(self._ready(), _ranks.stem(), "json")
        write_whole(self._file, report.to_json())
        self._has_moved = False

    def _free(self, folder: Path, stem: str, suffix: str) -> Path:
        """An unused file name. It contains the process ID, so processes do not collide."""
        while True:
            path = within(folder, f"{stem}-{self._number}.{suffix}")
            self._number += 1
            if not exists(path):
                return path

    def _complain(self, error: OSError | MemoryError) -> None:
        if not self._failed:
            _log.error(
                "cyclescope could not write a page to %s: %s. Later warnings have no page.",
                self._folder,
                str(error) or "out of memory",
            )
        self._failed = True
