"""``on_signal()`` and ``CYCLESCOPE_SIGNAL``: the process answers, and goes on as ever."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import cyclescope
from cyclescope._native import CycleReport, Heap
from support.marks import needs_torch
from support.nodes import SOURCE
from support.processes import python
from support.started import SECONDS, Started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals are handled on Linux only")

HEAD = f"""
import ctypes, gc, json, os, signal, subprocess, sys, threading, time
import numpy
{SOURCE}
gc.disable()
history = [numpy.ones(2**20, numpy.uint8) for _ in range(3)]
Node()


def ready(said="ready"):
    print(said, flush=True)


def pause():
    ready()
    sys.stdin.readline()
"""

IN_C = """
ready()
ctypes.CDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)
"""
"""A call of C code that has released the interpreter's lock and does not return."""


class Program(Started):
    """A program that a test signals."""

    def __init__(self, folder: Path, source: str, environment: Mapping[str, str]) -> None:
        self.answered = folder / "answers"
        paths = [str(Path(cyclescope.__path__[0]).parent), *filter(None, sys.path)]
        environment = {
            "PYTHONPATH": os.pathsep.join(paths),
            "CYCLESCOPE_REPORT_DIR": str(self.answered),
            **environment,
        }
        super().__init__(folder, HEAD + textwrap.dedent(source), environment, ["-W", "ignore"])

    def signal(self, number: int = signal.SIGUSR2) -> None:
        self.process.send_signal(number)

    def answers(self, count: int) -> list[Path]:
        """The texts of so many answers, once they are there."""
        self.wait(lambda: len(list(self.answered.glob("signal-*.txt"))) >= count)
        return sorted(self.answered.glob("signal-*.txt"))

    def end(self) -> int:
        """Wait for its end; the exit status."""
        return self.process.wait(SECONDS)


@contextmanager
def program(tmp_path: Path, source: str, environment: Mapping[str, str] = {}) -> Iterator[Program]:
    running = Program(tmp_path, source, environment)
    try:
        yield running
    finally:
        running.kill()


def beside(text: Path, kind: str) -> str:
    return text.with_name(text.name.removesuffix(".txt") + f"-{kind}").read_text("utf-8")


def check(text: Path) -> None:
    """An answer names what is kept, and the cycle, in every format."""
    said = text.read_text("utf-8")
    assert "not available" not in said
    assert "`history`" in said
    heap = Heap.from_json(beside(text, "heap.json"))
    assert sum(each.bytes for each in heap.buffers if "history" in each.owner) == 3 * 2**20
    report = CycleReport.from_json(beside(text, "cycles.json"))
    assert [(leak.bytes_held, leak.count) for leak in report.leaks] == [(2**20, 1)]
    assert "Node.me → Node" in said
    for page in ("heap.html", "cycles.html"):
        assert beside(text, page).startswith("<!DOCTYPE html>")


# It answers


@pytest.mark.parametrize(
    "wait",
    [
        IN_C,
        "ready()\ntime.sleep(1000)",
        "ready()\nthreading.Event().wait()",
        "ready()\nwhile True: sum(range(1000))",
    ],
    ids=["C", "sleep", "event", "busy"],
)
def test_it_answers_whatever_the_main_thread_does(tmp_path: Path, wait: str) -> None:
    arm = {"CYCLESCOPE_SIGNAL": "USR2"}
    with program(tmp_path, f"import cyclescope\n{wait}", arm) as running:
        assert running.line() == "ready"
        running.signal()
        check(running.answers(1)[0])
        running.signal()
        second = running.answers(2)[1]
        check(second)
        assert "Since the last signal" in second.read_text("utf-8")
        assert running.process.poll() is None


def test_what_has_grown_between_two_signals_is_told(tmp_path: Path) -> None:
    source = """
    import cyclescope
    watch = cyclescope.on_signal()
    monitor = cyclescope.watch_growth(every=1, devices="any")
    for _ in range(3):
        pause()
        history.append(numpy.ones(2**20, numpy.uint8))
        monitor.step()
    """
    with program(tmp_path, source) as running:
        assert running.line() == "ready"
        running.signal()
        running.answers(1)
        for _ in range(2):
            running.go_on()
            assert running.line() == "ready"
        running.signal()
        text = running.answers(2)[1]
        changes = json.loads(beside(text, "diff.json"))
        grown = {each["name"]: each["bytes"] for each in changes["owners"]}
        assert [size for name, size in grown.items() if "history" in name] == [2 * 2**20]
        assert json.loads(beside(text, "growth.json"))["steps"] == 2


def test_signals_in_a_row_have_an_answer_after_the_last(tmp_path: Path) -> None:
    source = """
    import cyclescope
    watch = cyclescope.on_signal(10)
    pause()
    late = numpy.ones(2**21, numpy.uint8)
    for _ in range(50):
        os.kill(os.getpid(), 10)
    pause()
    while not watch.reports:  # listed just after the file is there
        time.sleep(0.01)
    watch.stop()
    ready(len(watch.reports))
    """
    with program(tmp_path, source) as running:
        assert running.line() == "ready"
        running.go_on()
        assert running.line() == "ready"
        deadline = time.monotonic() + SECONDS
        while not any("late" in it.read_text("utf-8") for it in running.answers(1)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        running.go_on()
        assert 1 <= int(running.line()) <= 50
        assert running.end() == 0


COLLECTIVE = """
import torch, cyclescope
import torch.distributed as dist
from torch.utils.data import DataLoader

class Slow(torch.utils.data.IterableDataset):
    def __iter__(self):
        while not os.path.exists("go"):
            time.sleep(0.02)
        yield torch.ones(3)

rank = int(os.environ["RANK"])
where = "file://" + os.path.abspath("store")
dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
cyclescope.on_signal()
total = torch.full((4,), rank + 1.0)
if rank == 1:
    pause()
else:
    ready()
dist.all_reduce(total)
ready(total.tolist())
loader = DataLoader(Slow(), num_workers=1, multiprocessing_context="fork")
print(*next(iter(loader)).tolist(), flush=True)
dist.destroy_process_group()
"""


@needs_torch
def test_a_rank_that_is_stuck_answers_and_goes_on(tmp_path: Path) -> None:
    """In a collective that another rank has not come to, and while a data loader waits."""
    folders = [tmp_path / "rank0", tmp_path / "rank1"]
    for folder in folders:
        folder.mkdir()
    source = f"os.chdir({str(tmp_path)!r})\n{COLLECTIVE}"
    with (
        program(folders[0], source, {"RANK": "0"}) as stuck,
        program(folders[1], source, {"RANK": "1"}) as late,
    ):
        assert (stuck.line(), late.line()) == ("ready", "ready")
        time.sleep(0.5)
        stuck.signal()
        check(stuck.answers(1)[0])
        late.go_on()
        assert (stuck.line(), late.line()) == (str([3.0] * 4), str([3.0] * 4))
        for rank in stuck, late:
            rank.signal()
        check(stuck.answers(2)[1])
        check(late.answers(1)[0])
        (tmp_path / "go").touch()
        assert (stuck.line(), late.line()) == (str([1.0] * 3), str([1.0] * 3))
        assert (stuck.end(), late.end()) == (0, 0)


# It leaves alone


REFUSED = """
{before}
import cyclescope
try:
    cyclescope.on_signal()
except ValueError as error:
    ready(str(error))
{after}
"""


@pytest.mark.parametrize(
    ("before", "why", "after"),
    [
        (
            "signal.signal(signal.SIGUSR2, lambda *_: ready('own'))",
            "the program has a handler of its own for it",
            "signal.raise_signal(signal.SIGUSR2)",
        ),
        (
            "import faulthandler; faulthandler.register(signal.SIGUSR2, sys.stdout)",
            "the program has a handler of its own for it",
            "signal.raise_signal(signal.SIGUSR2)",
        ),
        (
            "signal.signal(signal.SIGUSR2, signal.SIG_IGN)",
            "the program ignores it",
            "signal.raise_signal(signal.SIGUSR2); ready('own')",
        ),
        (
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])",
            "the program blocks it in this thread",
            "signal.raise_signal(signal.SIGUSR2); signal.sigwait([signal.SIGUSR2]); ready('own')",
        ),
    ],
    ids=["handler", "faulthandler", "ignored", "blocked"],
)
def test_what_the_program_does_with_the_signal_stays(
    tmp_path: Path, before: str, why: str, after: str
) -> None:
    with program(tmp_path, REFUSED.format(before=before, after=after)) as running:
        said = running.line()
        assert said.startswith("SIGUSR2 is left alone: ")
        assert why in said
        assert "Choose another" in said
        # What the program does with the signal; faulthandler prints the stack.
        assert running.line() == "own" or "faulthandler" in before
        assert (running.end(), running.errors) == (0, "")
    assert not (tmp_path / "answers").exists()


def test_a_handler_that_the_program_installs_later_wins(tmp_path: Path) -> None:
    source = """
    import cyclescope
    watch = cyclescope.on_signal()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    before = signal.signal(signal.SIGUSR2, lambda *_: ready("own"))
    assert before is signal.SIG_DFL
    os.kill(os.getpid(), signal.SIGUSR2)
    watch.stop()
    os.kill(os.getpid(), signal.SIGUSR2)
    ready(watch.reports)
    """
    with program(tmp_path, source) as running:
        assert [running.line() for _ in range(3)] == ["own", "own", "[]"]
        assert (running.end(), running.errors) == (0, "")


def test_after_stop_the_signal_does_what_it_does_by_default(tmp_path: Path) -> None:
    source = """
    import cyclescope
    with cyclescope.on_signal() as watch:
        assert watch.is_running
    assert not watch.is_running
    os.kill(os.getpid(), signal.SIGUSR2)
    """
    with program(tmp_path, source) as running:
        assert running.end() == -signal.SIGUSR2


def test_another_call_replaces_the_watch(tmp_path: Path) -> None:
    source = """
    import cyclescope
    first, second = cyclescope.on_signal("usr2"), cyclescope.on_signal("SIGUSR2")
    third = cyclescope.on_signal(signal.SIGUSR1)
    assert [it.is_running for it in (first, second, third)] == [False, False, True]
    first.stop()
    assert third.is_running
    pause()
    ready([len(it.reports) for it in (first, second, third)])
    # Whoever sends the other signal does not know that it was replaced.
    os.kill(os.getpid(), signal.SIGUSR2)
    while len(third.reports) < 2:
        time.sleep(0.01)
    """
    with program(tmp_path, source) as running:
        assert running.line() == "ready"
        running.signal(signal.SIGUSR1)
        check(running.answers(1)[0])
        time.sleep(0.2)
        running.go_on()
        assert running.line() == "[0, 0, 1]"
        assert running.end() == 0


@pytest.mark.parametrize("wrong", ["TERM", "INT", "", "USR3", 9, 0, -1, 15, True, None, 10.0])
def test_other_signals_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="USR1, USR2, or a number from"):
        cyclescope.on_signal(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["TERM", "USR3"])
def test_a_wrong_variable_is_told_and_nothing_else(tmp_path: Path, wrong: str) -> None:
    source = "import cyclescope\nready()"
    with program(tmp_path, source, {"CYCLESCOPE_SIGNAL": wrong}) as running:
        assert (running.line(), running.end()) == ("ready", 0)
        assert "CYCLESCOPE_SIGNAL has no effect: signal must be" in running.errors


# It does no harm


def test_nothing_is_collected_and_no_finalizer_runs(tmp_path: Path) -> None:
    source = """
    import cyclescope, weakref
    class Closing(Node):
        def __del__(self):
            ready("closed")
    Closing()
    kept = [weakref.ref(it) for it in gc.get_objects() if isinstance(it, Node)]
    assert len(kept) == 2
    cyclescope.on_signal()
    before = [it["collections"] for it in gc.get_stats()], gc.callbacks[:], gc.get_debug()
    pause()
    after = [it["collections"] for it in gc.get_stats()], gc.callbacks, gc.get_debug()
    assert before == after, (before, after)
    assert all(it() is not None for it in kept)
    assert threading.enumerate() == [threading.main_thread()]
    ready("unharmed")
    """
    with program(tmp_path, source) as running:
        assert running.line() == "ready"
        running.signal()
        text = running.answers(1)[0]
        assert "Closing.me → Closing" in text.read_text("utf-8")
        time.sleep(0.2)
        running.go_on()
        assert running.line() == "unharmed"


def test_a_forked_child_ignores_it_and_may_ask_for_it(tmp_path: Path) -> None:
    source = """
    import cyclescope
    cyclescope.on_signal()
    child = os.fork()
    if child == 0:
        sys.stdin.close()
        os.kill(os.getpid(), signal.SIGUSR2)
        time.sleep(0.3)
        assert not os.path.exists(os.environ["CYCLESCOPE_REPORT_DIR"])
        cyclescope.on_signal()
        ready("child")
        time.sleep(1000)
    ready(child)
    os.waitpid(child, 0)
    """
    with program(tmp_path, source) as running:
        lines = {running.line(), running.line()}
        assert "child" in lines
        child = int((lines - {"child"}).pop())
        os.kill(child, signal.SIGUSR2)
        (answer,) = running.answers(1)
        assert f"-{child}-" in answer.name
        check(answer)
        running.signal()
        names = {it.name for it in running.answers(2)}
        assert any(f"-{running.process.pid}-" in each for each in names)
        os.kill(child, signal.SIGKILL)
        assert running.end() == 0


def test_programs_that_are_started_know_nothing_of_it(tmp_path: Path) -> None:
    source = """
    import cyclescope
    cyclescope.on_signal()
    for close in True, False:
        child = subprocess.Popen(["sleep", "1000"], close_fds=close)
        status = open(f"/proc/{child.pid}/status").read()
        masks = dict(line.split(":\\t") for line in status.splitlines() if line.startswith("Sig"))
        handled = int(masks["SigCgt"], 16) >> signal.SIGUSR2 - 1 & 1
        assert int(masks["SigBlk"], 16) == handled == 0, masks
        child.send_signal(signal.SIGUSR2)
        ready(child.wait())
    """
    with program(tmp_path, source) as running:
        assert [running.line() for _ in range(2)] == [str(-signal.SIGUSR2)] * 2


WORK = """
import random
generator = random.Random(7)

def work(number):
    mine = random.Random(number)
    kept = []
    for _ in range(300):
        kept.append({"array": numpy.full(mine.randrange(1, 999), mine.random()), "kept": kept})
        if mine.random() < 0.1:
            kept = []
    sums[number] = sum(float(it["array"].sum()) for it in kept)

gc.enable()
sums = {}
ready()
for _ in range(8):
    threads = [threading.Thread(target=work, args=(it,)) for it in range(8)]
    for it in threads: it.start()
    for it in threads: it.join()
ready(sorted(sums.items()))
sys.stdin.readline()
"""


def test_threads_go_on_and_come_to_the_same(tmp_path: Path) -> None:
    results = []
    for arm in "", "import cyclescope; cyclescope.on_signal()":
        with program(tmp_path, arm + WORK) as running:
            assert running.line() == "ready"
            while arm and not running.has_printed():
                running.signal()
                time.sleep(0.005)
            results.append(running.line())
            if arm:
                running.answers(1)
            running.go_on()
            assert running.end() == 0, running.errors
    assert results[0] == results[1]


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.2])
def test_the_program_ends_as_ever(tmp_path: Path, delay: float) -> None:
    """Whether the signal comes before, while or after the interpreter ends."""
    source = """
    import atexit, cyclescope
    class Late:
        def __del__(self):
            time.sleep(0.1)
    late = Late()
    cyclescope.on_signal()
    atexit.register(time.sleep, 0.1)
    ready()
    sys.exit(7)
    """
    with program(tmp_path, source) as running:
        assert running.line() == "ready"
        time.sleep(delay)
        while running.process.poll() is None:
            running.signal()
            time.sleep(0.003)
        assert running.end() == 7
        assert "Traceback" not in running.errors
        assert "Fatal" not in running.errors


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    source = """
    import cyclescope
    os.environ["CYCLESCOPE_REPORT_DIR"] = "/dev/null/answers"
    watch = cyclescope.on_signal()
    os.kill(os.getpid(), signal.SIGUSR2)
    while not watch.errors:
        time.sleep(0.01)
    ready(watch.errors)
    """
    with program(tmp_path, source) as running:
        assert "NotADirectoryError" in running.line()
        assert running.end() == 0
        assert "cannot write the memory report" in running.errors


def test_a_given_folder_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "answers"
    file.write_text("")
    with pytest.raises(OSError, match="report_dir is not writable"):
        cyclescope.on_signal(report_dir=file)


def test_a_child_that_is_forked_during_an_answer_collects_by_itself() -> None:
    script = """
    import gc, importlib, os
    module = importlib.import_module("cyclescope._live.on_signal")
    module._pause_collections()
    assert not gc.isenabled()
    child = os.fork()
    if not child:
        os._exit(0 if gc.isenabled() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    module._resume_collections()
    assert gc.isenabled()
    gc.disable()
    module._pause_collections()
    module._resume_collections()
    assert not gc.isenabled()
    """
    python("-c", textwrap.dedent(script), check=True)
