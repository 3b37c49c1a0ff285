"""Runs CPython's own regression tests with and without the watch, and compares test by test.

``make test-cpython`` runs it with each interpreter that is installed. Both runs have the same
start-up code (``sitecustomize.py``) but for the watch, and so the same imports. A test that is not
the same in both is run again, alone, up to ``AGAIN`` times each way: what fails now and then
without the watch too says nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
MODULES = [
    "test_gc",
    "test_sys",
    "test_weakref",
    "test_generators",
    "test_coroutines",
    "test_asyncgen",
    "test_asyncio",
    "test_exceptions",
    "test_frame",
    "test_descr",
    "test_functools",
    "test_threading",
    "test_ctypes",
    "test_capi",
    "test_concurrent_futures",
    "test_multiprocessing_fork",
    "test_multiprocessing_spawn",
    "test_multiprocessing_forkserver",
    "test_multiprocessing_main_handling",
    "test_io",
    "test_subprocess",
    "test_inspect",
    "test_dataclasses",
    "test_typing",
    "test_pickle",
    "test_copy",
    "test_collections",
]
AGAIN = 3
LIMIT = 1200
"""Seconds for one module."""

Outcomes = dict[str, str]


@dataclass(frozen=True)
class Result:
    """What became of one module's tests."""

    module: str
    tests: int
    passed: int
    skipped: int
    failed_bare: int
    only_watched: list[str]
    """Tests that fail with the watch and never without."""
    reports: int
    seconds: float


def outcomes(module: str, proof: Path | None, match: str | None = None) -> Outcomes:
    """How each test of a module ended."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
    # Not named like a setting of cyclescope, which would say that it knows no such one.
    if proof is not None:
        environment["PROOF_OF_WATCH"] = str(proof)
    # Counts of the collector's own are what test_gc is about.
    environment.setdefault("GARBAGE_FROM", "callback")
    if module == "test_gc":
        environment["GARBAGE_FROM"] = "nothing"
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        command = [sys.executable, "-m", "test", "--junit-xml", str(results), "-u", "none"]
        command += ["--timeout", str(LIMIT // 2)]
        command += ["-m", match] if match else []
        try:
            done = subprocess.run(
                [*command, module],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {module: "timed out"}
        if not results.exists():
            return {module: f"crashed, exit status {done.returncode}: {done.stderr[-2000:]}"}
        return {
            f"{case.get('classname')}.{case.get('name')}": outcome(case)
            for case in ElementTree.parse(results).iter("testcase")
        }


def outcome(case: ElementTree.Element) -> str:
    """How one test ended; what it printed stands among the same elements."""
    ends = ("failure", "error", "skipped")
    return next((element.tag for element in case if element.tag in ends), "passed")


def only_watched(module: str, name: str) -> bool:
    """True if a test that differed fails with the watch, each time, and never without."""
    match = name.rpartition(".")[2].partition(" ")[0]
    for _ in range(AGAIN):
        with tempfile.TemporaryDirectory() as folder:
            watched = outcomes(module, Path(folder, "proof"), match)
        if watched.get(name, "passed") in ("passed", "skipped"):
            return False
        if outcomes(module, None, match).get(name, "passed") not in ("passed", "skipped"):
            return False
    return True


def compare(module: str) -> Result:
    started = time.monotonic()
    bare = outcomes(module, None)
    with tempfile.TemporaryDirectory() as folder:
        proof = Path(folder, "proof")
        watched = outcomes(module, proof)
        reports = sum(map(int, proof.read_text().split())) if proof.exists() else 0
    good = ("passed", "skipped")
    suspects = [
        name
        for name, how in watched.items()
        if how not in good and bare.get(name, "missing") in (*good, "missing")
    ]
    suspects += [name for name in bare if name not in watched and bare[name] in good]
    return Result(
        module,
        tests=len(watched),
        passed=list(watched.values()).count("passed"),
        skipped=list(watched.values()).count("skipped"),
        failed_bare=sum(how not in good for how in bare.values()),
        only_watched=[name for name in suspects if only_watched(module, name)],
        reports=reports,
        seconds=time.monotonic() - started,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("modules", nargs="*", help="such as test_gc (default: all that matter)")
    parser.add_argument(
        "--alone",
        action="store_true",
        help="no other callback than the watch's: a finalizer leaves the garbage",
    )
    parser.add_argument("--jobs", type=int, default=1, help="modules at a time (default: 1)")
    args = parser.parse_args()
    if args.alone:
        os.environ["GARBAGE_FROM"] = "finalizer"

    # A job in the background of a script ignores interrupts, and would hand that down to the tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(f"CPython {platform.python_version()}\n")
    print("| module | tests | passed | skipped | failed without | failed only with | reports |")
    print("| ------ | ----: | -----: | ------: | -------------: | ---------------: | ------: |")
    modules = args.modules or MODULES
    found = [it for it in modules if importlib.util.find_spec(f"test.{it}") is not None]
    guilty = [f"{it}: this Python came without it" for it in modules if it not in found]
    pool = ThreadPoolExecutor(args.jobs)
    # The rows come as modules end: one that takes long, or hangs, holds back no other.
    for done in as_completed([pool.submit(compare, module) for module in found]):
        result = done.result()
        module = result.module
        guilty += [f"{module}: {name}" for name in result.only_watched]
        print(
            f"| {module} | {result.tests} | {result.passed} | {result.skipped} "
            f"| {result.failed_bare} | {len(result.only_watched)} | {result.reports} |",
            flush=True,
        )
        if result.tests <= 1 and not result.passed:
            guilty.append(f"{module}: did not run")
    print("\n" + "\n".join(guilty))
    sys.exit(bool(guilty))


if __name__ == "__main__":
    main()
