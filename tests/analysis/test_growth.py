"""What grows with the number of steps: every pitfall named, every look-alike silent."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cyclescope

try:
    import torch
except ImportError:
    pytest.skip("what grows is looked for in PyTorch's tensors", allow_module_level=True)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "live"

import shared  # noqa: E402

WINDOW = 10
NEEDED = 13
STEPS = 2 * (NEEDED + 3)
"""At which growth is told that is sampled in every other step."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    gc.collect()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def watch(loop: shared.Loop, steps: int = STEPS, every: int = 2) -> list[cyclescope.Growth]:
    """What is told of a loop, however small it is and whatever the samples take."""
    monitor = cyclescope.LeakMonitor(
        every=every, devices="any", min_bytes=0, max_share=float("inf")
    )
    with monitor:
        loop("cpu", steps, monitor.step)
    return monitor.found


@pytest.mark.parametrize("name", shared.names())
def test_the_pitfall_is_named(name: str) -> None:
    program = shared.load(name)
    (found,) = watch(program.pitfall, program.EXPECTED.steps, program.EXPECTED.every)
    assert found.pattern == program.EXPECTED.pattern
    assert program.EXPECTED.owner in found.owner


@pytest.mark.parametrize("name", shared.names())
def test_the_look_alike_is_not_told(name: str) -> None:
    program = shared.load(name)
    assert watch(program.look_alike, program.EXPECTED.steps, program.EXPECTED.every) == []


def test_it_is_told_once_in_one_line_with_advice(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "cyclescope")
    (found,) = watch(shared.load("losses_kept").pitfall, steps=3 * STEPS)
    (record,) = [each for each in caplog.records if each.name == "cyclescope"]
    assert record.getMessage() == str(found)
    assert "`.item()`" in found.advice
    assert found.tensors >= WINDOW
    assert "float32[] on cpu" in str(found)


def test_there_is_a_history_of_what_grows(tmp_path: Path) -> None:
    monitor = cyclescope.LeakMonitor(every=2, devices="any", min_bytes=0, max_share=float("inf"))
    with monitor:
        shared.load("container_grows").pitfall("cpu", STEPS, monitor.step)
    (told,) = monitor.found
    assert {told} == set(monitor.found)
    assert told.as_dict()["tensors"] == told.tensors
    report = json.loads(monitor.to_json())
    assert (report["schema"], report["kind"], report["steps"]) == (1, "growth", STEPS)
    (found,) = report["found"]
    assert found["owner"] == told.owner
    steps = [step for step, _, _ in found["history"]]
    assert steps == list(range(2, STEPS + 1, 2))
    assert found["history"][-1][2] > found["history"][2][2]
    assert [sample[2] for sample in report["all"]] >= [sample[2] for sample in found["history"]]
    assert report["allocated"] == []
    page = monitor.write(tmp_path / "new")
    assert "container-grows" in page.read_text()
    assert monitor.write(tmp_path / "new") != page
    assert str(told) in page.with_suffix(".txt").read_text()
    assert monitor._repr_html_().startswith("<iframe ")


def test_nothing_that_grows_is_a_page_too() -> None:
    with cyclescope.LeakMonitor(every=1, devices="any", max_share=float("inf")) as monitor:
        for needed in range(NEEDED, 0, -1):
            assert "Too early to tell" in monitor.to_html(), needed
            assert "Too early to tell: 13 samples are needed." in monitor.to_text()
            monitor.step()
        assert "Nothing grows" in monitor.to_html()
        assert "Nothing grows" in monitor.to_text()


def test_what_is_small_and_has_no_graph_is_not_told() -> None:
    kept = []
    with cyclescope.LeakMonitor(every=1, devices="any", max_share=float("inf")) as monitor:
        for _ in range(STEPS):
            kept.append(torch.zeros(8))
            monitor.step()
    assert monitor.found == []


def test_the_line_that_made_it_is_told_if_something_records_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tracemalloc

    from cyclescope._live.allocator import line_of_block

    tracemalloc.start(10)
    try:
        (found,) = watch(shared.load("container_grows").pitfall)
    finally:
        tracemalloc.stop()
    # CPython 3.11 looks for instances that have a `__dict__` where they are not.
    if sys.version_info[:2] != (3, 11):
        assert found.allocated_at is not None
        file, _, line = found.allocated_at.rpartition(":")
        assert file.endswith("container_grows.py")
        assert "torch.full" in Path(file).read_text().splitlines()[int(line) - 1]

    stack = [
        {"filename": "??", "line": 0, "name": "at::empty"},
        {"filename": "/lib/site-packages/torch/x.py", "line": 1, "name": "x"},
        {"filename": "train.py", "line": 7, "name": "step"},
    ]
    blocks = [{"address": 4096, "size": 512, "state": "active_allocated", "frames": stack}]
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: True, raising=False)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: [{"blocks": blocks}])
    assert line_of_block(torch, "cuda:0", 4096) == "train.py:7"
    assert line_of_block(torch, "cuda:0", 8192) is None
    assert line_of_block(torch, "cpu", 4096) is None


def test_devices_that_were_not_asked_for_are_not_told() -> None:
    monitor = cyclescope.LeakMonitor(every=1, devices="cuda", min_bytes=0, max_share=float("inf"))
    with monitor:
        shared.load("container_grows").pitfall("cpu", STEPS, monitor.step)
    assert monitor.found == []


def test_samples_become_rarer_where_they_take_long() -> None:
    with cyclescope.LeakMonitor(every=1, devices="any", max_share=1e-9) as monitor:
        for _ in range(20):
            monitor.step()
    assert monitor.cost.samples < 8
    assert monitor.cost.every > 1


def test_no_variable_is_kept_alive_by_looking_at_it() -> None:
    import weakref

    from cyclescope import _native

    kept = []

    def step(monitor: cyclescope.LeakMonitor) -> weakref.ref[torch.Tensor]:
        batch = torch.zeros(4)
        died = weakref.ref(batch)
        kept.append(torch.zeros(4))
        monitor.step()
        _native.memory_in_use("cpu", 60)
        buffers = cyclescope.heap().buffers
        (found,) = [each for each in buffers if each.pointer == batch.data_ptr()]
        assert found.owner.startswith("local `batch` in ")
        batch = torch.zeros(5)  # on CPython 3.12 and before a snapshot of the locals would keep it
        return died

    with cyclescope.LeakMonitor(
        every=1, devices="any", min_bytes=0, max_share=float("inf")
    ) as monitor:
        for _ in range(NEEDED):
            assert step(monitor)() is None
    assert monitor.found


def test_nothing_of_the_program_runs() -> None:
    class Tensor(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *arguments: object, **named: object) -> object:
            raise AssertionError("ran")

        def __getattribute__(self, name: str) -> object:
            raise AssertionError("ran")

    class Module(torch.nn.Module):
        def __getattr__(self, name: str) -> torch.Tensor:
            raise AssertionError("ran")

    kept = [torch.zeros(4).as_subclass(Tensor) for _ in range(3)]
    module = Module()
    with cyclescope.LeakMonitor(every=1, devices="any", max_share=float("inf")) as monitor:
        for _ in range(3):
            monitor.step()
    assert monitor.cost.samples == 3
    assert monitor._running or not monitor.found
    del kept, module


def test_a_program_without_pytorch_is_not_made_to_import_it() -> None:
    source = (
        "import sys, cyclescope\n"
        "with cyclescope.watch_growth(every=1, devices='any') as monitor:\n"
        "    for _ in range(5): monitor.step()\n"
        "print('torch' in sys.modules, monitor.steps)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["False", "5"]


@pytest.mark.parametrize("every", [0, -1, True, "often"])
def test_a_wrong_number_of_steps_is_refused(every: object) -> None:
    with pytest.raises(ValueError, match="every must be a positive number of steps"):
        cyclescope.LeakMonitor(every=every)  # type: ignore[arg-type]


ran: list[str] = []


class Meta(type):
    """A class of classes that notes what is asked of them."""

    def __eq__(cls, other: object) -> bool:
        ran.append("__eq__")
        return False

    def __hash__(cls) -> int:
        ran.append("__hash__")
        return 1

    def __getattribute__(cls, name: str) -> object:
        ran.append(name)
        return super().__getattribute__(name)


class Owner(metaclass=Meta):
    def __init__(self) -> None:
        self.kept: list[object] = []

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        ran.append("__class__")
        return list


class Text(str):
    def __str__(self) -> str:
        ran.append("__str__")
        return "nothing"

    def startswith(self, *arguments: object) -> bool:
        ran.append("startswith")
        return False


LOOP = """
def loop(owner, weight, step):
    for _ in range(40):
        owner.kept.append((inputs @ weight).tanh())
        step()
"""


def test_no_code_of_the_program_runs_that_an_owner_or_a_module_brings() -> None:
    program = {"__name__": Text("program"), "inputs": torch.ones(64, 4)}
    exec(LOOP, program)
    weight = torch.ones(4, 4, requires_grad=True)
    owner = Owner()
    with cyclescope.LeakMonitor(
        every=1, devices="any", min_bytes=0, max_share=float("inf")
    ) as monitor:
        ran.clear()
        program["loop"](owner, weight, monitor.step)  # type: ignore[operator]
        page = monitor.to_html()
        asked = list(ran)
    (found,) = monitor.found
    assert found.owner.startswith("local `owner` in `loop`, ")
    assert found.owner.endswith(" (Owner) → .kept")
    assert "(Owner) → .kept" in page
    assert asked == []
