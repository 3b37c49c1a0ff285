"""The test suites of published packages with a watch and without: does any test end differently?

Each suite runs bare, under a watch, and under a watch beside another callback that leaves garbage,
with collections that come often. A test that ends differently is run again, with its file, up to
``AGAIN`` times each way: what fails now and then without a watch too says nothing.

usage: PYTHONPATH=python python tests/harmless/suites.py [SUITE ...] [--environment FOLDER]

The packages come from the package index, into a virtual environment of their own. Ends with 1 if a
test ends differently, or a suite did not run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cyclescope

PLUGIN = Path(__file__).with_name("suite_plugin.py")
MODES = ("watch", "beside")
AGAIN = 3
LIMIT = 1200
"""Seconds for one run."""
BASE = ("numpy", "pytest", "pytest-timeout", "hypothesis")

Outcomes = dict[str, str]


@dataclass(frozen=True)
class Suite:
    """Tests of one package."""

    package: str
    needs: tuple[str, ...]
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()
    from_source: bool = False
    """The tests are not in the wheel."""


SUITES = {
    "networkx": Suite(
        "networkx",
        ("networkx",),
        (
            "networkx.classes",
            "networkx.utils",
            "networkx.readwrite",
            "networkx.algorithms.flow",
            "networkx.algorithms.shortest_paths",
            "networkx.algorithms.isomorphism",
        ),
    ),
    "sqlalchemy": Suite(
        "sqlalchemy",
        ("sqlalchemy", "greenlet"),
        (
            "test/base",
            "test/orm/test_attributes.py",
            "test/orm/test_collection.py",
            "test/orm/test_cycles.py",
            "test/orm/test_events.py",
            "test/orm/test_instrumentation.py",
            "test/orm/test_mapper.py",
            "test/orm/test_pickled.py",
            "test/orm/test_session.py",
            "test/orm/test_unitofwork.py",
            "test/orm/test_utils.py",
        ),
        ("-o", "addopts=--maxfail=250 -p warnings -p logging"),
        from_source=True,
    ),
    "numpy": Suite(
        "numpy",
        (),
        (
            "numpy._core.tests.test_multiarray",
            "numpy._core.tests.test_umath",
            "numpy._core.tests.test_indexing",
            "numpy._core.tests.test_dtype",
            "numpy._core.tests.test_nditer",
        ),
        # These take half a minute each, or gigabytes.
        ("-k", "not huge and not arbitrary_number_of_ops and not count_nonzero_all"),
    ),
    "pandas": Suite("pandas", ("pandas",), ("pandas.tests.groupby", "pandas.tests.frame.methods")),
}


@dataclass
class Run:
    """What became of one run of a suite."""

    outcomes: Outcomes
    said: str
    seconds: float
    leaks: int = 0
    works: bool = True


@dataclass
class Home:
    """Where packages are installed and suites run."""

    folder: Path
    python: str = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        self.python = str(self.folder / "bin" / "python")
        if not Path(self.python).exists():
            # Without pip, as not every Python brings what installs it.
            self.call([sys.executable, "-m", "venv", "--without-pip", str(self.folder)])
        # The tests are beside neither the packages nor whatever else stands beside them.
        self.path = self.folder / "path"
        self.path.mkdir(exist_ok=True)
        shutil.copy(PLUGIN, self.path)
        link = self.path / "cyclescope"
        link.unlink(missing_ok=True)
        link.symlink_to(Path(cyclescope.__file__).parent)

    @staticmethod
    def call(command: Sequence[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    def install(self, packages: Sequence[str]) -> None:
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet"]
        self.call([*pip, "--disable-pip-version-check", "--prefer-binary", *packages])

    def packages(self) -> Path:
        return next(self.folder.glob("lib/python3*/site-packages"))

    def version(self, package: str) -> str:
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        command = [self.python, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def source(self, package: str) -> Path:
        """The source of the version that is installed."""
        name = f"{package}-{self.version(package)}"
        at = self.folder / "source"
        if not (at / name).is_dir():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary"]
            pip += [":all:", "--disable-pip-version-check"]
            self.call([*pip, name.replace("-", "=="), "-d", str(at)])
            with tarfile.open(next(at.glob(f"{name}.tar.gz"))) as archive:
                archive.extractall(at)
        return at / name


def run(home: Home, suite: Suite, mode: str, tests: Sequence[str]) -> Run:
    """How each test ended."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("CYCLESCOPE")},
            "PYTHONPATH": str(home.path),
            "PYTHONHASHSEED": "0",
            "HARMLESS_MODE": mode,
            "HARMLESS_FOLDER": name,
        }
        results = folder / "results.xml"
        command = [home.python, "-m", "pytest", "-p", "suite_plugin", "-p", "no:cacheprovider"]
        command += ["-q", "--timeout", str(LIMIT // 2), f"--junitxml={results}", *suite.options]
        at = home.source(suite.package) if suite.from_source else folder
        if not suite.from_source:
            # Where names of tests begin: with their package.
            command += ["--rootdir", str(home.packages()), "--pyargs"]
        started = processor_time()
        try:
            done = subprocess.run(
                [*command, *tests],
                cwd=at,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT,
                check=False,
            )
            said = f"exit status {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
        except subprocess.TimeoutExpired:
            said = f"did not end in {LIMIT} s"
        seconds = processor_time() - started
        if not results.exists():
            return Run({}, said, seconds)
        found: Outcomes = {}
        for case in ElementTree.parse(results).iter("testcase"):
            test = f"{case.get('classname')}::{case.get('name')}"
            ends = [each.tag for each in case if each.tag in ("failure", "error", "skipped")]
            # The same name may come twice, with parameters that pytest cannot tell apart.
            while test in found:
                test += "'"
            found[test] = ", ".join(ends) or "passed"
        done_run = Run(found, said, seconds)
        if mode != "bare":
            proof = folder / "proof.json"
            says = json.loads(proof.read_text()) if proof.exists() else {}
            done_run.leaks = says.get("leaks", 0)
            done_run.works = says.get("works", False)
        return done_run


def processor_time() -> float:
    """Of all processes that have ended, in seconds: the machine may be busy with others."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def different(bare: Outcomes, watched: Outcomes) -> list[str]:
    return sorted(test for test in bare | watched if bare.get(test) != watched.get(test))


def part_of(suite: Suite, test: str) -> list[str]:
    """What to run again for a test: of the suite's parts the one that it is in."""
    module = test.partition("::")[0]
    names = [part.removesuffix(".py").replace("/", ".") for part in suite.tests]
    found = [
        part
        for part, name in zip(suite.tests, names, strict=True)
        if f".{module}.".find(f".{name}.") >= 0
    ]
    return found or list(suite.tests)


def harmed(home: Home, suite: Suite, mode: str, test: str) -> str:
    """How a test that differed ends each way, or nothing if it also differs without a watch."""
    part = part_of(suite, test)
    bare: set[str] = set()
    watched: set[str] = set()
    for _ in range(AGAIN):
        watched.add(run(home, suite, mode, part).outcomes.get(test, "missing"))
        bare.add(run(home, suite, "bare", part).outcomes.get(test, "missing"))
        if watched & bare:
            return ""
    return f"{' or '.join(sorted(watched))}, and without a watch {' or '.join(sorted(bare))}"


def compare(home: Home, name: str) -> list[str]:
    """What a watch changes in a suite."""
    suite = SUITES[name]
    home.install([*BASE, *suite.needs])
    bare = run(home, suite, "bare", suite.tests)
    kinds = list(bare.outcomes.values())
    failed = len(kinds) - kinds.count("passed") - kinds.count("skipped")
    label = f"{name} {home.version(suite.package)}"
    wrong: list[str] = []
    if not kinds.count("passed"):
        wrong.append(f"{name} did not run: {bare.said}")
    for mode in MODES:
        other = run(home, suite, mode, suite.tests)
        suspects = different(bare.outcomes, other.outcomes)
        lost = len(set(bare.outcomes) - set(other.outcomes))
        if lost > 100:
            guilty = [f"{name}, {mode}: {lost} tests did not run: {other.said}"]
        else:
            ways = {test: harmed(home, suite, mode, test) for test in suspects}
            guilty = [f"{name}, {mode}: {test}: {how}" for test, how in ways.items() if how]
        if not other.works:
            guilty.append(f"{name}, {mode}: the watch saw nothing of a last leak: {other.said}")
        wrong += guilty
        print(
            f"| {label} | {mode} | {len(other.outcomes)} | {kinds.count('passed')} "
            f"| {kinds.count('skipped')} | {failed} | {len(suspects)} | {len(guilty)} "
            f"| {other.leaks} | {bare.seconds:.0f} s, {other.seconds:.0f} s |",
            flush=True,
        )
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--environment", type=Path, help="folder of the virtual environment")
    args = parser.parse_args()
    unknown = [name for name in args.suites if name not in SUITES]
    if unknown:
        parser.error(f"there is no suite {unknown[0]!r}: there are {', '.join(SUITES)}")
    print(f"CPython {platform.python_version()}\n")
    print(
        "| suite | mode | tests | passed bare | skipped bare | failed bare | differed once "
        "| differences | leaks told | CPU seconds bare, watched |"
    )
    print("| ----- | ---- | " + " | ".join(["----:"] * 8) + " |")
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        home = Home(args.environment or Path(temporary, "environment"))
        for name in args.suites or SUITES:
            wrong += compare(home, name)
    print("\n" + "\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
