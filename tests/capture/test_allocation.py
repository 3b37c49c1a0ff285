"""Where what leaked was allocated: by `tracemalloc`, and by PyTorch's memory history."""

from __future__ import annotations

import gc
import inspect
import logging
import sys
import time
import tracemalloc
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy
import pytest

import cyclescope
from cyclescope import _history, _native
from support.processes import python


class Owner:
    # CPython 3.11 looks for instances with a `__dict__` at a wrong address, and so finds no trace.
    __slots__ = ("array", "me")

    def __init__(self, array: object) -> None:
        self.array = array
        self.me = self


def leak() -> tuple[int, int]:
    """Leaks an array; the lines that allocate the array and its owner."""
    array = numpy.zeros(2**18, dtype=numpy.float32)
    Owner(array)
    line = inspect.getsourcelines(leak)[1]
    return line + 2, line + 3


pytestmark = pytest.mark.usefixtures("collector_paused")


@pytest.fixture
def tracing() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def check(report: cyclescope.CycleReport, lines: tuple[int, int]) -> None:
    (found,) = report.leaks
    (buffer,) = found.buffers
    owner = next(step for step in found.cycle if step.label.endswith("Owner"))
    assert owner.allocated_at == f"{__file__}:{lines[1]}"
    assert buffer.allocated_at == f"{__file__}:{lines[0]}"
    assert f"allocated at {__file__}:{lines[1]}" in str(report)
    assert f"allocated at {__file__}:{lines[0]}" in str(report)
    copy = cyclescope.CycleReport.from_json(report.to_json())
    assert copy.leaks[0].buffers[0].allocated_at == buffer.allocated_at


def test_find_says_which_line_allocated_each_object(tracing: None) -> None:
    lines = leak()
    check(cyclescope.find_tensor_cycles(devices="any", frozen=False), lines)


def test_a_collection_that_allocates_in_its_callbacks_is_traced_too(tracing: None) -> None:
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, devices="any"):
        lines = leak()
        gc.collect()
    check(reports[0], lines)


def test_without_tracing_nothing_is_claimed() -> None:
    leak()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    assert report.leaks[0].cycle[0].allocated_at is None
    assert "allocated at" not in str(report)


@pytest.mark.parametrize("kind", ["of the program", "built-in"])
def test_a_function_put_in_place_of_the_look_up_is_not_called(
    tracing: None, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    import _tracemalloc

    called: list[object] = []
    call = called.append if kind == "built-in" else lambda it: called.append(it)
    monkeypatch.setattr(_tracemalloc, "_get_object_traceback", call)
    leak()
    (found,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert found.cycle[0].allocated_at is None
    assert called == []


def test_another_look_up_of_the_same_module_is_not_called(
    tracing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import _tracemalloc

    monkeypatch.setattr(_tracemalloc, "is_tracing", _tracemalloc.stop)
    leak()
    (found,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert found.cycle[0].allocated_at is None
    assert tracemalloc.is_tracing.__name__ == "is_tracing"
    assert tracemalloc.is_tracing()


def test_a_program_that_traces_nothing_gets_no_module_for_it() -> None:
    source = "import sys, cyclescope; print('_tracemalloc' in sys.modules)"
    done = python("-c", source, env={"PYTHONPATH": ":".join(filter(None, sys.path))}, check=True)
    assert done.stdout == "False\n"


def test_the_program_s_own_line_stands_before_a_library_s() -> None:
    tracemalloc.start(10)
    # `full` is written in Python, so the innermost line is NumPy's.
    Owner(numpy.full(2**18, 1.0, dtype=numpy.float32))
    line = inspect.getsourcelines(test_the_program_s_own_line_stands_before_a_library_s)[1] + 3
    (found,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    tracemalloc.stop()
    assert found.buffers[0].allocated_at == f"{__file__}:{line}"


def test_tracing_from_the_start_of_the_interpreter_is_noticed() -> None:
    source = """
import numpy
import cyclescope
owner = []
owner.append(owner)
owner.append(numpy.zeros(2**18))
del owner
(found,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
print(found.buffers[0].allocated_at)
"""
    done = python(
        "-X", "tracemalloc", "-c", source, env={"PYTHONPATH": ":".join(filter(None, sys.path))}
    )
    assert done.stdout == "<string>:6\n", done.stderr


FRAMES: list[dict[str, Any]] = [
    {
        "filename": "/usr/lib/python3.11/site-packages/torch/nn/functional.py",
        "line": 7,
        "name": "f",
    },
    {"filename": "train.py", "line": 12, "name": "step"},
    {"filename": "train.py", "line": 40, "name": "main"},
]
STACK = [(frame["filename"], frame["line"], frame["name"]) for frame in FRAMES]


def entry(action: str, addr: int, size: int, time_us: int, line: int = 12) -> dict[str, Any]:
    """An entry of a trace as `torch.cuda.memory._snapshot` of PyTorch 2.11 has it."""
    frames = [frame | {"line": line} if frame["line"] == 12 else frame for frame in FRAMES]
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": time_us,
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": frames if action == "alloc" else [],
    }


AT = 0x7F00_0000_0000
BEGAN, END = 10_000_000.0, 10_050_000.0


def look(
    *entries: dict[str, Any], pointer: int = AT, size: int = 4096
) -> list[tuple[str, int, str]]:
    return _history.frames_of(list(entries), pointer, size, BEGAN, END)


def test_the_stack_is_that_of_the_allocation_freed_by_the_collection() -> None:
    entries = [
        entry("alloc", AT, 4096, 1_000_000, line=99),
        entry("free_requested", AT, 4096, 2_000_000),
        entry("free_completed", AT, 4096, 2_000_000),
        entry("alloc", AT, 4096, 3_000_000),
        entry("alloc", AT + 4096, 4096, 3_500_000, line=99),
        entry("free_requested", AT, 4096, 10_020_000),
        entry("free_completed", AT, 4096, 10_020_000),
        # The program went on, and got the same address again.
        entry("alloc", AT, 4096, 11_000_000, line=99),
        entry("free_requested", AT, 4096, 12_000_000),
    ]
    assert look(*entries) == STACK


def test_an_allocation_after_the_inspection_began_is_another() -> None:
    entries = [
        entry("alloc", AT, 4096, 9_000_000),
        entry("free_requested", AT, 4096, 10_049_000),
        entry("alloc", AT, 4096, 10_050_200, line=99),
        entry("free_requested", AT, 4096, 10_050_300),
    ]
    assert look(*entries) == STACK


def test_memory_that_is_still_there_is_found() -> None:
    assert look(entry("alloc", AT, 4096, 3_000_000)) == STACK


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([], id="nothing recorded"),
        pytest.param([entry("alloc", AT, 4096, 11_000_000)], id="allocated after"),
        pytest.param(
            [entry("alloc", AT, 4096, 1_000_000), entry("free_requested", AT, 4096, 2_000_000)],
            id="freed long before",
        ),
        pytest.param([entry("free_requested", AT, 4096, 10_020_000)], id="allocation forgotten"),
        pytest.param([entry("alloc", AT, 2048, 1_000_000)], id="too small"),
        pytest.param([entry("alloc", AT + 512, 512, 1_000_000)], id="inside"),
        pytest.param(
            [
                entry("alloc", AT, 4096, 9_999_100, line=99),
                entry("free_requested", AT, 4096, 9_999_500),
                entry("alloc", AT, 4096, 9_999_600),
                entry("free_requested", AT, 4096, 10_020_000),
            ],
            id="freed twice within the clocks' error",
        ),
    ],
)
def test_what_is_not_sure_is_not_claimed(entries: list[dict[str, Any]]) -> None:
    assert look(*entries) == []


def test_stacks_begin_with_the_program_s_own_frame() -> None:
    leak()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    (buffer,) = report.leaks[0].buffers
    explained = _native.with_allocations(report, {(buffer.device, buffer.pointer): STACK})
    expected = ["train.py:12 step", "train.py:40 main"]
    assert explained.leaks[0].buffers[0].allocation == expected
    assert "allocated at train.py:12 step" in str(explained)
    assert buffer.allocation == []


def test_without_cuda_a_sentence_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeTorch()
    monkeypatch.delattr(FakeTorch, "_cuda_record_memory_history")
    monkeypatch.setitem(sys.modules, "torch", fake)
    _history._said.clear()
    with caplog.at_level(logging.WARNING, "cyclescope"):
        for _ in range(2):
            cyclescope.observe_tensor_cycles(print, devices="cpu", record_history=True).stop()
    said = [r.getMessage() for r in caplog.records if "record_history" in r.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("record_history=True has no effect: ")


class FakeMemory:
    """`torch.cuda.memory`, as far as it is asked."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.snapshots = 0
        self.entries: list[dict[str, Any]] = []

    def _record_memory_history(self, enabled: str | None, **options: Any) -> None:
        self.calls.append(enabled)

    def _snapshot(self) -> dict[str, Any]:
        self.snapshots += 1
        return {"segments": [], "device_traces": [self.entries]}


class FakeTorch(ModuleType):
    """PyTorch with a GPU that is not initialised yet."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.memory = FakeMemory()
        self.queue: list[Any] = []
        self.enabled = False
        self.cuda = self._C = self.version = self
        self.hip = "6.0"

    def _lazy_call(self, function: Any) -> None:
        self.queue.append(function)

    def _cuda_record_memory_history(self) -> None: ...

    def _cuda_isHistoryEnabled(self) -> bool:
        return self.enabled


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_recording_waits_for_cuda_and_ends_with_the_last_watch(torch: FakeTorch) -> None:
    first, second = _history.History(), _history.History()
    assert torch.memory.calls == []
    for function in torch.queue:
        function()
    assert torch.memory.calls == ["all"]
    first.stop()
    first.stop()
    assert torch.memory.calls == ["all"]
    second.stop()
    assert torch.memory.calls == ["all", None]


def test_a_recording_of_the_program_s_own_is_left_alone(torch: FakeTorch) -> None:
    torch.enabled = True
    history = _history.History()
    torch.queue.pop()()
    history.stop()
    assert torch.memory.calls == []


def test_a_watch_stopped_before_cuda_was_initialised_records_nothing(torch: FakeTorch) -> None:
    history = _history.History()
    history.stop()
    torch.queue.pop()()
    assert torch.memory.calls == []


@pytest.mark.parametrize("is_stopped", [False, True])
def test_it_begins_once_pytorch_is_imported(
    monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    history = _history.History()
    if is_stopped:
        history.stop()
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    deadline = time.monotonic() + (0.3 if is_stopped else 60)
    while not fake.queue and time.monotonic() < deadline:
        time.sleep(0.01)
    assert bool(fake.queue) is not is_stopped
    history.stop()
