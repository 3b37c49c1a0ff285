"""Programs under a watch and without, while something else looks at them or is short.

Those of ``extensions.py`` and of ``support.hosts``: traced, profiled, monitored, with little
memory, a full disk, and so on. Each condition is the same for both runs, and all that they print
must be.

usage: PYTHONPATH=python python tests/harmless/conditions.py [PROGRAM ...] [--under CONDITION ...]
       [--built FOLDER]

A program is named as ``extensions:greenlets`` or ``hosts:random_garbage``. Ends with 1 if one
differs.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib
import logging
import operator
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
TIMEOUT = 300
HOSTS = (
    "user_saves_all",
    "older_garbage_stays",
    "weak_references_die_of_their_callbacks",
    "finalizers_in_order",
    "random_garbage",
    "generations",
    "frozen_objects",
)
"""Programs of ``support.hosts`` that are cheap, and print the same each time."""
EXTENSIONS = (
    "greenlets",
    "lxml_elements",
    "pyarrow_tables",
    "cython_classes",
    "pybind11_classes",
    "cffi_handles",
    "ctypes_structures",
    "sqlite_connections",
    "asyncio_tasks",
    "iterators",
    "thread_locals",
    "files",
    "exhausted",
)
TRACERS = ("settrace", "settrace-first", "setprofile", "monitoring")
UNFIT = {
    *(("exhausted", tracer) for tracer in TRACERS),
    *(("nothing_left", tracer) for tracer in (*TRACERS, "tracemalloc")),
    ("random_garbage", "threshold-1"),
    ("generations", "threshold-1"),
}
"""Not run: what looks at the first two wants memory itself, the others print what is collected."""


class Log:
    """Events in order, as one number."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.thread = threading.get_ident()

    def event(self, *what: object) -> None:
        self.events.append(" ".join(map(str, what)))

    def show(self, kind: str) -> None:
        if os.environ.get("SHOW_EVENTS"):
            print(*self.events, sep="\n")
        text = "\n".join(self.events).encode()
        print(kind, len(self.events), hashlib.sha256(text).hexdigest()[:16])


def place(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"


def counts_objects(code: CodeType) -> bool:
    """Whether it goes over all objects, or all callbacks: a watch has some of its own."""
    names = ("<genexpr>", "<listcomp>", "state", "alive")
    return code.co_name in names and code.co_filename.endswith("parts.py")


@contextlib.contextmanager
def traced(says: bool = True) -> Iterator[None]:
    log = Log()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if not counts_objects(frame.f_code):
            log.event(event, place(frame))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        if says:
            log.show("traced")


@contextlib.contextmanager
def profiled() -> Iterator[None]:
    log = Log()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        called = getattr(argument, "__name__", "") if "c_" in event else ""
        if not counts_objects(frame.f_code):
            log.event(event, place(frame), called)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        log.show("profiled")


@contextlib.contextmanager
def monitored() -> Iterator[None]:
    """Unlike the others this one sees what every thread does: only this one's is compared."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        yield
        return
    log = Log()
    events = monitoring.events
    names = ["PY_START", "PY_RETURN", "PY_YIELD", "PY_RESUME", "LINE", "CALL", "C_RETURN", "RAISE"]
    names += ["PY_UNWIND", "STOP_ITERATION", "EXCEPTION_HANDLED", "C_RAISE"]
    monitoring.use_tool_id(monitoring.PROFILER_ID, "harmless")

    def listener(name: str) -> Callable[..., None]:
        def listen(code: Any, *arguments: object) -> None:
            if threading.get_ident() == log.thread and not counts_objects(code):
                line = arguments[0] if name == "LINE" else ""
                log.event(name, os.path.basename(code.co_filename), code.co_name, line)

        return listen

    for name in names:
        monitoring.register_callback(monitoring.PROFILER_ID, getattr(events, name), listener(name))
    wanted = 0
    for name in names:
        if not name.startswith("C_"):
            wanted |= getattr(events, name)
    monitoring.set_events(monitoring.PROFILER_ID, wanted)
    try:
        yield
    finally:
        monitoring.set_events(monitoring.PROFILER_ID, 0)
        monitoring.free_tool_id(monitoring.PROFILER_ID)
        log.show("monitored")


@contextlib.contextmanager
def memory_traced() -> Iterator[None]:
    """Not which blocks it counts where: what comes from a free list is not traced."""
    tracemalloc.start(25)
    yield
    tracemalloc.stop()


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Enough for the program, and for few reports."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + 24 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def short_files() -> Iterator[None]:
    """No file gets longer than this, and so no page is complete."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def often() -> Iterator[None]:
    """A collection at each second object that is made.

    A callback that does nothing makes those come at the same allocations in both runs.
    """
    before = gc.get_threshold()
    gc.callbacks.append(operator.is_)
    gc.set_threshold(1)
    gc.enable()
    yield
    gc.disable()
    gc.set_threshold(*before)
    gc.callbacks.remove(operator.is_)


@contextlib.contextmanager
def beside() -> Iterator[None]:
    """Another callback, which leaves garbage that every collection has something to report of."""
    import numpy

    def leave_garbage(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            ring: list[Any] = [numpy.zeros(8)]
            ring.append(ring)

    gc.callbacks.append(leave_garbage)
    yield
    gc.callbacks.remove(leave_garbage)


@dataclass(frozen=True)
class Condition:
    enter: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    in_order: bool = True
    """If not, collections come by themselves, and what they print may come in another order."""
    full: bool = False
    """The folder for reports is on a full disk."""
    from_start: bool = False
    """It is there before the watch is."""
    counts: bool = True
    """How many objects of each type there are is compared, too; it would be seen by a tracer."""


CONDITIONS = {
    "": Condition(),
    "beside": Condition(beside),
    "settrace": Condition(traced, counts=False),
    "settrace-first": Condition(partial(traced, says=False), from_start=True, counts=False),
    "setprofile": Condition(profiled, counts=False),
    "monitoring": Condition(monitored, counts=False),
    "tracemalloc": Condition(memory_traced, from_start=True),
    "little-memory": Condition(little_memory),
    "full-disk": Condition(full=True),
    "short-files": Condition(short_files),
    "dev": Condition(options=("-X", "dev")),
    "importtime": Condition(options=("-X", "importtime")),
    "debug-malloc": Condition(environment=(("PYTHONMALLOC", "debug"),)),
    "system-malloc": Condition(environment=(("PYTHONMALLOC", "malloc"),)),
    "threshold-1": Condition(often, in_order=False),
}


# In the child.


def child(name: str, under: str, watched: bool) -> None:
    """Run one program."""
    group, _, what = name.partition(":")
    module = importlib.import_module("support.hosts" if group == "hosts" else group)
    function: Callable[[], object] = module.PROGRAMS[what]
    condition = CONDITIONS[under]
    gc.disable()
    watch: Any = None
    with contextlib.ExitStack() as stack:
        early, late = contextlib.ExitStack(), contextlib.ExitStack()
        stack.enter_context(early)
        if condition.from_start:
            early.enter_context(condition.enter())
        if watched:
            import cyclescope

            logging.getLogger("cyclescope").disabled = True
            watch = cyclescope.warn_tensor_cycles(
                devices="any", report_dir=os.environ["REPORTS_OF_WATCH"]
            )
        gc.collect()
        # The watch finds out that its witness can be relied on.
        for generation in (0, 1, 2) * 4:
            lose_an_array()
            gc.collect(generation)
        if watch is not None:
            watch.flush(60)
        stack.enter_context(late)
        if not condition.from_start:
            late.enter_context(condition.enter())
        if group == "hosts":
            function()
        else:
            rounds = (2,) if what in module.SLOW else module.ROUNDS
            module.play(function, rounds)
            if what not in module.SLOW and condition.in_order and condition.counts:
                module.play(function, rounds)
                before = census(watch)
                module.play(function, rounds)
                print("more objects", sorted((census(watch) - before).items()))
        late.close()
        early.close()
    if watch is not None:
        watch.flush(60)
        before = sum(leak.count for leak in watch.leaks)
        lose_an_array(2)
        gc.collect()
        watch.flush(60)
        told = sum(leak.count for leak in watch.leaks)
        Path(os.environ["PROOF_OF_WATCH"]).write_text(f"{before} {told - before}")


def lose_an_array(number: int = 1) -> None:
    import numpy

    ring: list[Any] = [numpy.zeros(1234 + number)]
    ring.append(ring)


def census(watch: Any) -> Counter[str]:
    """How many objects of which types there are, but for the watch's own."""
    gc.collect()
    if watch is not None:
        watch.flush(60)
    kinds = (type(it) for it in gc.get_objects())
    return Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)


# In the parent.


@dataclass(frozen=True)
class Outcome:
    returncode: int
    stdout: str
    stderr: str


@contextlib.contextmanager
def place_for_reports(full: bool) -> Iterator[str]:
    """A folder, of which the disk is full if that is asked for and we may have such a disk."""
    with tempfile.TemporaryDirectory() as folder:
        mounted = (
            full
            and not subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=16k", "harmless", folder],
                capture_output=True,
                check=False,
            ).returncode
        )
        if mounted:
            with contextlib.suppress(OSError), open(Path(folder, "big"), "wb") as big:
                for _ in range(100):
                    big.write(bytes(1024))
                    big.flush()
        try:
            yield folder
        finally:
            if mounted:
                subprocess.run(["umount", folder], check=True)


def run(name: str, under: str, watched: bool, built: str = "") -> tuple[Outcome, str]:
    """What came of a program, and what the watch says of its own work."""
    condition = CONDITIONS[under]
    with place_for_reports(condition.full) as reports, tempfile.TemporaryDirectory() as folder:
        proof = Path(folder, "proof")
        path = [str(HERE), str(HERE.parent), built, os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            **dict(condition.environment),
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONHASHSEED": "0",
            "REPORTS_OF_WATCH": reports,
            "PROOF_OF_WATCH": str(proof),
        }
        options = [*condition.options, str(Path(__file__)), "--child", name, "--under", under]
        command = [sys.executable, *options, *["--watch"] * watched]
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(124, "", f"did not end in {TIMEOUT} s"), ""
        ended = Outcome(done.returncode, done.stdout, done.stderr)
        return comparable(ended, condition), proof.read_text() if proof.exists() else ""


def comparable(outcome: Outcome, condition: Condition) -> Outcome:
    """Without what is never the same: addresses, times, names by chance."""
    stderr = re.sub(r"0x[0-9a-f]+|psm_[0-9a-f]+|, [0-9.]+s elapsed", "", outcome.stderr)
    # Both have the import, and only one of them that of cyclescope.
    stderr = re.sub(r"^import time:.*\n", "", stderr, flags=re.M)
    stderr = re.sub(r"pid=\d+|\d+ bytes? at|Task-\d+", "", stderr)
    stderr = re.sub(r"fd=\d+", "fd", stderr)
    stdout = outcome.stdout
    if not condition.in_order:
        kept = (line for line in stdout.splitlines() if not line.startswith("collected"))
        stdout = "\n".join(sorted(kept))
        stderr = "\n".join(sorted(stderr.splitlines()))
    return Outcome(outcome.returncode, stdout, stderr)


def first_difference(bare: Outcome, watched: Outcome) -> str:
    if bare.returncode != watched.returncode:
        how = [
            signal.Signals(-code).name if code < 0 else str(code)
            for code in (bare.returncode, watched.returncode)
        ]
        return f"ends with {how[0]} bare and {how[1]} watched: {watched.stderr[-1500:]}"
    for kind in ("stdout", "stderr"):
        one, other = getattr(bare, kind).splitlines(), getattr(watched, kind).splitlines()
        for number, (left, right) in enumerate(zip(one, other, strict=False)):
            if left != right:
                return f"{kind}, line {number}: bare {left!r}, watched {right!r}"
        if len(one) != len(other):
            more = (one + other)[min(len(one), len(other)) :][:1]
            return f"{kind} has {len(one)} lines bare, and {len(other)} watched: {more}"
    return ""


def compare(name: str, under: str, built: str = "") -> tuple[str, str]:
    """What a watch changes in a program, if it does, and a word about how the run went."""
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run, name, under, False, built)
        second = pool.submit(run, name, under, True, built)
    (bare, _), (watched, proof) = first.result(), second.result()
    if bare == watched:
        if bare.returncode:
            return f"ends with {bare.returncode} both ways: {bare.stderr[-600:]}", proof
        works = int((proof.split() or ["0"])[-1]) > 0
        return ("" if works else f"the watch did not see the last leak ({proof!r})"), proof
    if run(name, under, False, built)[0] != bare:
        return "", "differs bare from bare, so nothing is compared"
    return first_difference(bare, watched), proof


def missing(name: str, built: str) -> list[str]:
    """What a program needs and is not there."""
    group, _, what = name.partition(":")
    if group != "extensions":
        return []
    import extensions

    if built and built not in sys.path:
        sys.path.append(built)
    return extensions.missing(what)


def compare_all(names: Sequence[str], unders: Sequence[str], built: str = "") -> bool:
    """Whether any program differs; says which."""
    wrong: list[str] = []
    print(f"CPython {platform.python_version()}\n")
    print("| condition | programs | differences | leaks told | differ by themselves | seconds |")
    print("| --------- | -------: | ----------: | ---------: | -------------------- | ------: |")
    lacking = {name: missing(name, built) for name in names}
    for under in unders:
        started = time.monotonic()
        if under == "monitoring" and sys.version_info < (3, 12):
            continue
        compared = [
            name
            for name in names
            if not lacking[name] and (name.partition(":")[2], under) not in UNFIT
        ]
        told, found = 0, len(wrong)
        flaky = []
        for name in compared:
            difference, proof = compare(name, under, built)
            if proof.startswith("differs"):
                flaky.append(name.partition(":")[2])
            elif proof:
                told += int(proof.split()[0])
            if difference:
                wrong.append(f"{name} under {under or 'nothing'}: {difference}")
        seconds = time.monotonic() - started
        print(
            f"| {under or 'nothing'} | {len(compared)} | {len(wrong) - found} | {told} "
            f"| {' '.join(flaky)} | {seconds:.0f} |",
            flush=True,
        )
    for name, needs in lacking.items():
        if needs:
            print(f"not run: {name}, which needs {', '.join(needs)}")
    print("\n" + "\n".join(wrong))
    return bool(wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--under", nargs="+", choices=CONDITIONS, metavar="CONDITION")
    parser.add_argument("--built", default="", help="folder for modules that are compiled")
    parser.add_argument("--all", action="store_true", help="every program of extensions.py")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        child(args.child, args.under[0], args.watch)
        return
    from compiled import compile_into
    from extensions import PROGRAMS

    chosen = PROGRAMS if args.all else EXTENSIONS
    names = args.programs or [
        *(f"extensions:{name}" for name in chosen),
        *(f"hosts:{name}" for name in HOSTS),
    ]
    with tempfile.TemporaryDirectory() as folder:
        built = args.built or folder
        compile_into(Path(built))
        sys.exit(compare_all(names, args.under or list(CONDITIONS), built))


if __name__ == "__main__":
    main()
