"""Checks in proportion to what tests make, not to the heap."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from cyclescope import _native
from cyclescope._forbid import clean_up
from cyclescope._native import CycleReport
from cyclescope._pytest.own import is_own
from cyclescope._system import collect, freeze_count, generation_stats
from cyclescope._watch import STOP_SECONDS, Watch

NAMED = 5
"""Maximum number of tests that a sentence names."""


class Reach(enum.Enum):
    """Which objects a check looks at."""

    TEST = enum.auto()
    """Those made since the test began."""
    MODULE = enum.auto()
    """Those made since the first test of its module began."""
    HEAP = enum.auto()
    """All."""


@dataclass(frozen=True)
class Alike:
    """What tests of one series have in common."""

    devices: tuple[str, ...]
    ignore: tuple[str, ...]
    fails: bool
    """A leak fails the test."""
    whole: bool
    """Each check looks at the whole heap, so that there is no series."""


@dataclass(frozen=True)
class LateLeak:
    """A leak that was found after the test which made it."""

    report: CycleReport
    """The leak, and no other."""
    tests: list[str]
    """The tests that made it; if that is uncertain, those that may have."""
    certain: bool
    first: str
    """The first test of the series."""

    @property
    def makers(self) -> list[str]:
        """The tests that made it, or a clause in their place."""
        return self.tests if self.certain else [str(self)]

    def __str__(self) -> str:
        """A clause that says which tests made it."""
        named = ", ".join(self.tests[:NAMED])
        if len(self.tests) > NAMED:
            named = f"{named} and {len(self.tests) - NAMED} more"
        if self.certain:
            checks = "the check of that test" if len(self.tests) == 1 else "their checks"
            return f"made by {named}, and dropped after {checks}"
        if self.tests:
            return f"made by one of these tests or before them: {named}"
        return f"made before {self.first} began, and dropped since"


def each_late(found: CycleReport | None, tests: list[str], *, certain: bool) -> list[LateLeak]:
    """The leaks of a report, one by one, as leaks that these tests have made or may have made."""
    leaks = [] if found is None else found.leaks
    parts = [_native.select(found, [leak.signature]) for leak in leaks]  # type: ignore[arg-type]
    return [LateLeak(part, tests, certain, tests[0]) for part in parts]


class Series:
    """Tests in a row that are checked in the same way, each for what it made itself.

    The objects that a test makes are young, or the last ones of the oldest generation: see
    ``Epochs`` in ``src/collector/epochs.rs``. A watch sees what automatic collections free
    meanwhile. What a test makes and a later one drops is found at the latest when the series ends,
    and the order of the objects still says who made it.

    If something in a test makes that order unknown, such as ``gc.freeze()``, its check looks at the
    whole heap. What ``gc.unfreeze()`` brings back lies among the objects of the current test. In
    both cases, any test until then may have made what is found, unless this is the first one.
    """

    def __init__(self, alike: Alike) -> None:
        self.alike = alike
        self._devices = list(alike.devices)
        self._ignore = list(alike.ignore)
        self._seen: list[CycleReport] = []
        self._answered: set[float] = set()
        self._late: list[LateLeak] = []
        self._tests: dict[int, str] = {}
        """By epoch; a test may have several."""
        self._unordered: list[str] = []
        """Tests of which no epoch is known any more."""
        self._test = ""
        self._module: object = None
        self._epoch = self._first = 0
        """When the current test and its module began; not of earlier epochs than are known."""
        self._is_clean = True
        """No test but the current one has run since the whole heap was free of garbage."""
        self._frozen = 0
        """How many objects ``gc.freeze()`` hid by then; some may have been garbage."""
        self._known_frozen: set[str] = set()
        """Signatures of what was found among these. Brought back, it is the same once more."""
        self._thawed: set[int] = set()
        """Epochs in which ``gc.unfreeze()`` has brought back objects."""
        self._has_failed = False
        self._collections = 0
        """How many collections made objects old, when the test began."""
        clean_up()
        self._watch = Watch(
            self._devices,
            self._seen.append,
            once_per_leak=False,
            ignore=self._ignore,
            keep_all=True,
        )

    def begin(self, test: str, module: object = None) -> bool:
        """A test begins. False if this interpreter cannot tell new objects from others."""
        raised = self._has_failed
        if raised:
            self.discard()
        self._note_thaw()
        if self._test and self._freezes:
            # Between the tests.
            own = self._take(Reach.HEAP, drops=False)
            self._late += each_late(own, [self._test], certain=True)
        begun = _native.begin_epoch()
        if begun is None:
            return False
        self._watch.flush(STOP_SECONDS)
        for report in self._take_seen():
            # As far as it is the last test's own, pytest held it.
            self._divide(report, drops=raised)
        self._is_clean = not self._test
        self._test = test
        self._has_failed = False
        self._collections = _collections()
        self._frozen = freeze_count()
        self._note(*begun)
        if module is not self._module:
            self._module, self._first = module, self._epoch
        return True

    def fail(self) -> None:
        """The test fails by itself: its exception, which pytest keeps, contains cycles."""
        self._has_failed = True

    def take(self, reach: Reach = Reach.TEST) -> CycleReport:
        """What the current test leaked since it began, or since the previous call."""
        return self._take(reach, drops=False)

    def _take(self, reach: Reach, *, drops: bool) -> CycleReport:
        self._note_thaw()
        since = {Reach.TEST: self._epoch, Reach.MODULE: self._first, Reach.HEAP: 0}[reach]
        froze = self._freezes
        looked = None if froze else _native.find_new(self._devices, self._ignore, since)
        whole = looked is None
        if looked is None:
            looked = _native.find(self._devices, self._ignore, froze)
        self._watch.flush(STOP_SECONDS)
        # The watch reports the collection of the check too, now or a little later.
        self._answered.add(looked.time)
        own = [self._divide(report, drops=drops) for report in (looked, *self._take_seen())]
        if whole and (begun := _native.begin_epoch()) is not None:
            if begun[1]:
                self._is_clean = True
            self._note(*begun)
        if froze:
            self._frozen = freeze_count()
            self._known_frozen |= {leak.signature for leak in looked.leaks if leak.frozen}
        # What is said of the collection is said of the first: not of one that found nothing.
        return _native.merge(sorted(own, key=lambda report: not report.leaks))

    @property
    def _freezes(self) -> bool:
        """True if more is frozen than before, and some of it may be garbage."""
        return freeze_count() > self._frozen

    def discard(self) -> None:
        """Free what only the exception of the test has held. That is no leak of the test."""
        # A look frees leaks. What holds no tensor yet would, once fixtures let go of theirs.
        collect(1 if _collections() == self._collections else 2)
        self._take(Reach.TEST, drops=True)
        self._has_failed = False

    def take_late(self) -> list[LateLeak]:
        """The leaks of earlier tests found so far."""
        late, self._late = self._late, []
        return late

    def stop(self) -> None:
        """The series ends."""
        self._watch.stop()
        _native.forget_epochs()

    def _note(self, epoch: int, is_first: bool) -> None:
        if is_first:
            self._unordered = list(dict.fromkeys([*self._unordered, *self._tests.values()]))
            self._tests.clear()
            self._first = epoch
        self._epoch = epoch
        self._tests[epoch] = self._test

    def _note_thaw(self) -> None:
        if self._frozen and not freeze_count():
            self._thawed.add(self._epoch)

    def _take_seen(self) -> list[CycleReport]:
        seen = self._seen.copy()
        del self._seen[: len(seen)]
        return [report for report in seen if report.time not in self._answered]

    def _divide(self, report: CycleReport, *, drops: bool) -> CycleReport:
        """The part of a report that is about the current test. The rest is kept for later.

        With ``drops``, that part is of the test's exception, and so is what has no known order.
        """
        if not report.leaks:
            return report
        own = []
        epochs = _native.epochs(report)
        for leak in report.leaks:
            if is_own(leak):
                continue
            made = [
                None if epoch in self._thawed else epoch
                for epoch in epochs.get(leak.signature, [None])
            ]
            makers = {self._maker(epoch) for epoch in made}
            is_ordered = None not in made
            if not is_ordered and leak.signature in self._known_frozen:
                continue
            if self._test in makers or (drops and not is_ordered):
                own.append(leak.signature)
            else:
                part = _native.select(report, [leak.signature])
                self._keep(part, makers, is_ordered=is_ordered)
        return _native.select(report, own)

    def _maker(self, epoch: int | None) -> str | None:
        """The test that an epoch belongs to; None if it is not known."""
        if self._is_clean and not (epoch is None and self._frozen):
            return self._test
        return None if epoch is None else self._tests.get(epoch)

    def _keep(self, report: CycleReport, makers: set[str | None], *, is_ordered: bool) -> None:
        certain = None not in makers
        begun = list(dict.fromkeys([*self._unordered, *self._tests.values()]))
        if certain:
            tests = [name for name in begun if name in makers]
        else:
            tests = self._unordered if is_ordered else begun
        self._late.append(LateLeak(report, tests, certain, begun[0]))


def _collections() -> int:
    """How many collections there were that make objects old."""
    return sum(generation["collections"] for generation in generation_stats()[1:])
