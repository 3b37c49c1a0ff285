"""Random test suites of which is known who makes and who drops each leak."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SHARED = '''
import gc, numpy, pytest
kept = {}

class Leak:
    def __init__(self, closed=True):
        self.array = numpy.zeros(1000)
        self.me = self if closed else None

def make(name, closed=True):
    return type(name, (Leak,), {})(closed)

class Closes(Leak):
    """Its finalizer breaks the cycle."""
    def __init__(self, closed=True):
        super().__init__(closed)
        self.running = self.run()
        next(self.running)
    def run(self):
        try:
            yield self
        finally:
            self.me = self.running = None

def make_closing(name):
    return type(name, (Closes,), {})()

def grow_old():
    for _ in range(3):
        gc.collect(1)

def many():
    return [[i] for i in range(3000)]
'''


@dataclass
class Truth:
    """Node ids of who made the objects of a leak's cycle and who dropped them; None: no test."""

    maker: str | None
    dropper: str | None


@dataclass
class Suite:
    """Source files by name, and the leaks in them by class."""

    files: dict[str, str]
    leaks: dict[str, Truth] = field(default_factory=dict)


@dataclass
class _Test:
    module: str
    name: str
    lines: list[str] = field(default_factory=list)
    fixtures: list[str] = field(default_factory=list)

    @property
    def nodeid(self) -> str:
        return f"{self.module}.py::{self.name}"

    def source(self) -> str:
        body = "".join(f"    {line}\n" for line in [*self.lines, "pass"])
        return f"def {self.name}({', '.join(self.fixtures)}):\n{body}\n"


class _Drawing:
    """A suite that is being drawn."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tests = [
            _Test(f"test_m{module}", f"test_t{number}")
            for module in range(self.rng.randint(1, 4))
            for number in range(self.rng.randint(1, 6))
        ]
        self.heads = dict.fromkeys((test.module for test in self.tests), HEAD)
        self.leaks: dict[str, Truth] = {}

    def pick(self, first: _Test | None = None) -> _Test:
        """A test, not before `first`."""
        return self.rng.choice(self.tests[self.tests.index(first) if first else 0 :])

    def maker(self) -> str:
        return self.rng.choice(["make", "make_closing"])

    def at_once(self, name: str) -> None:
        test = self.pick()
        test.lines.append(f"{self.maker()}({name!r})")
        self.leaks[name] = Truth(test.nodeid, test.nodeid)

    def old(self, name: str) -> None:
        test = self.pick()
        ages = self.rng.choice(["grow_old()", "gc.collect()", "many(); gc.collect(); many()"])
        drops = self.rng.choice(["", "; gc.collect()", "; gc.collect(1)"])
        test.lines.append(f"it = {self.maker()}({name!r}); {ages}; del it{drops}")
        self.leaks[name] = Truth(test.nodeid, test.nodeid)

    def later(self, name: str) -> None:
        test = self.pick()
        later = self.pick(test)
        test.lines.append(f"kept[{name!r}] = {self.maker()}({name!r})")
        drops = self.rng.choice(["", "; gc.collect()", "; grow_old()"])
        later.lines.append(f"kept.pop({name!r}){drops}")
        self.leaks[name] = Truth(test.nodeid, later.nodeid)

    def closed_later(self, name: str) -> None:
        test = self.pick()
        later = self.pick(test)
        last = self.pick(later)
        test.lines.append(f"kept[{name!r}] = make({name!r}, False)")
        later.lines.append(f"kept[{name!r}].me = kept[{name!r}]")
        last.lines.append(f"del kept[{name!r}]")
        self.leaks[name] = Truth(test.nodeid, last.nodeid)

    def fixture(self, name: str) -> None:
        test = self.pick()
        scope = self.rng.choice(["function", "class", "module", "session"])
        self.heads[test.module] += (
            f"@pytest.fixture(scope={scope!r})\ndef fixture_{name}():\n"
            f"    it = make({name!r})\n    yield it\n    del it\n\n"
        )
        test.fixtures.append(f"fixture_{name}")
        of_module = [other for other in self.tests if other.module == test.module]
        droppers = {"module": of_module[-1], "session": self.tests[-1]}
        self.leaks[name] = Truth(test.nodeid, droppers.get(scope, test).nodeid)

    def by_import(self, name: str) -> None:
        test = self.pick()
        self.heads[test.module] += f"kept[{name!r}] = make({name!r})\n\n"
        test.lines.append(f"del kept[{name!r}]")
        self.leaks[name] = Truth(None, test.nodeid)

    def noise(self) -> None:
        for number in range(self.rng.randint(0, 6)):
            line = self.rng.choice(NOISE).format(number=number)
            self.pick().lines.insert(0, line)
        for test in self.tests:
            if self.rng.random() < 0.05:
                test.lines.append(self.rng.choice(["assert 0", "pytest.skip()", FREEZES]))


def make_suite(seed: int) -> Suite:
    """A suite of a few modules."""
    drawing = _Drawing(seed)
    ways = [
        drawing.at_once,
        drawing.old,
        drawing.later,
        drawing.closed_later,
        drawing.fixture,
        drawing.by_import,
    ]
    for number in range(drawing.rng.randint(0, 10)):
        drawing.rng.choice(ways)(f"Leak{number}")
    drawing.noise()
    files = {"shared.py": SHARED}
    for module, head in drawing.heads.items():
        own = [test.source() for test in drawing.tests if test.module == module]
        files[f"{module}.py"] = head + "\n".join(own)
    return Suite(files, drawing.leaks)


HEAD = "import gc, pytest\nimport shared\nfrom shared import *\n\n"
FREEZES = "gc.freeze(); many(); gc.unfreeze()"
NOISE = (
    "gc.collect()",
    "gc.collect(1)",
    "many()",
    "kept['noise {number}'] = many()",
    "[[], [many() for _ in range(4)]]",
    "ring = []; ring.append(ring); del ring",
)
