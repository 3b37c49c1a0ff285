"""What grows with the number of steps: every pitfall named, every look-alike silent."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import cyclescope
from cyclescope import _native
from cyclescope._live import growth

try:
    import torch
except ImportError:
    pytest.skip("what grows is looked for in PyTorch's tensors", allow_module_level=True)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "live"

import shared  # noqa: E402
from support import growing, growing_look_alikes, growing_parts  # noqa: E402
from support.monitors import monitor_of_all  # noqa: E402
from support.processes import python  # noqa: E402

WINDOW = 10
NEEDED = 13
STEPS = 2 * (NEEDED + 3)
"""At which growth is told that is sampled in every other step."""


pytestmark = pytest.mark.usefixtures("no_garbage")


def watch(loop: shared.Loop, steps: int = STEPS, every: int = 2) -> list[cyclescope.Growth]:
    """What is told of a loop, however small it is and whatever the samples take."""
    monitor = monitor_of_all(every=every)
    with monitor:
        loop("cpu", steps, monitor.step)
    return monitor.found


def shows_function() -> bool:
    """Whether this version of PyTorch keeps the Python object of an autograd function."""
    loss = torch.ones(2, requires_grad=True).sum()
    return loss.grad_fn in gc.get_referents(loss)


@pytest.mark.parametrize("name", shared.names())
def test_the_pitfall_is_named(name: str) -> None:
    if name == "grad_fn_kept" and shows_function():
        pytest.skip("PyTorch itself keeps these objects, so who else does is not known")
    program = shared.load(name)
    (found,) = watch(program.pitfall, program.EXPECTED.steps, program.EXPECTED.every)
    assert found.pattern == program.EXPECTED.pattern
    assert program.EXPECTED.owner in found.owner


@pytest.mark.parametrize("name", shared.names())
def test_the_look_alike_is_not_told(name: str) -> None:
    program = shared.load(name)
    assert watch(program.look_alike, program.EXPECTED.steps, program.EXPECTED.every) == []


def test_it_is_told_once_with_advice(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "cyclescope")
    (found,) = watch(shared.load("losses_kept").pitfall, steps=3 * STEPS)
    (record,) = [each for each in caplog.records if each.name == "cyclescope"]
    assert record.getMessage() == found.to_text()
    assert max(map(len, found.to_text().splitlines())) <= 100
    first, *labels = [line for line in found.to_text().splitlines() if line[2:3] != " "]
    assert first.startswith(f"step {found.step}: ")
    assert [label.split()[0] for label in labels] == ["Fix:", "Held:", "Why:"]
    facts = record.__dict__["cyclescope"]
    assert json.loads(json.dumps(facts)) == {"event": "growth", **found.as_dict()}
    assert "`.item()`" in found.advice
    assert found.tensors >= WINDOW
    assert "float32[] on cpu" in str(found)


def test_a_further_call_takes_over() -> None:
    first = cyclescope.watch_growth(every=1, devices="any")
    with cyclescope.watch_growth(every=1, devices="any") as second:
        own = cyclescope.LeakMonitor(every=1, devices="any")
        for monitor in (first, second, own):
            monitor.step()
        assert [first.steps, second.steps, own.steps] == [0, 1, 1]
        own.stop()


def test_there_is_a_history_of_what_grows(tmp_path: Path) -> None:
    monitor = monitor_of_all(every=2)
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
    assert told.to_text() in page.with_suffix(".txt").read_text()
    assert monitor._repr_html_().startswith("<iframe ")


def test_nothing_that_grows_is_a_page_too() -> None:
    with cyclescope.LeakMonitor(every=1, devices="any", max_share=float("inf")) as monitor:
        assert "Too early to tell" in monitor.to_html()
        assert "Too early to tell: no step was counted" in monitor.to_text()
        monitor.step()
        for needed in range(NEEDED - 1, 0, -1):
            assert "Too early to tell" in monitor.to_html(), needed
            said = f"Too early to tell: {NEEDED - needed} of {NEEDED} samples; growth can be found"
            assert f"{said} from step {NEEDED} on." in monitor.to_text()
            assert monitor.headline.startswith("too early to tell")
            monitor.step()
        assert monitor.headline.startswith("no growth of tensor memory was seen")
        assert "No growth was found" in monitor.to_html()
        assert "No growth was found" in monitor.to_text()


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
    asked: list[bool] = []

    def is_recording() -> bool:
        asked.append(True)
        return True

    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", is_recording, raising=False)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: [{"blocks": blocks}])
    # PyTorch crashes if it is asked before it has initialised CUDA.
    assert line_of_block(torch, "cuda:0", 4096) is None
    assert not asked
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert line_of_block(torch, "cuda:0", 4096) == "train.py:7"
    assert line_of_block(torch, "cuda:0", 8192) is None
    assert line_of_block(torch, "cpu", 4096) is None


def test_devices_that_were_not_asked_for_are_not_told() -> None:
    monitor = cyclescope.LeakMonitor(every=1, devices="cuda", min_bytes=0, max_share=float("inf"))
    with monitor:
        shared.load("container_grows").pitfall("cpu", STEPS, monitor.step)
    assert monitor.found == []


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, monitor: cyclescope.LeakMonitor) -> None:
        self.now = 0.0
        self.sample_takes = 0.0
        sample = growth.LeakMonitor._pace
        monitor._began = monitor._sampled_at = 0.0

        def pace(monitor: cyclescope.LeakMonitor, started: float) -> None:
            self.now += self.sample_takes
            sample(monitor, started)

        monkeypatch.setattr(growth, "monotonic", lambda: self.now)
        monkeypatch.setattr(growth.LeakMonitor, "_pace", pace)

    def steps(self, monitor: cyclescope.LeakMonitor, count: int, *, each: float) -> int:
        """Make steps that take so long; the number of samples in these."""
        before = monitor.cost.samples
        for _ in range(count):
            self.now += each
            monitor.step()
        return monitor.cost.samples - before


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples look at nothing, so that many take no time."""

    class Nothing:
        found: list[cyclescope.Growth] = []  # noqa: RUF012

        def step(self, *_: object) -> list[object]:
            return []

        def sample(self, *_: object) -> tuple[list[object], list[object]]:
            return [], []

    monkeypatch.setattr(_native, "GrowthWatch", lambda *_: Nothing())


def test_the_interval_is_bounded_and_comes_back(
    no_looks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cyclescope.LeakMonitor(every=10, devices="any") as monitor:
        clock = Clock(monkeypatch, monitor)
        clock.sample_takes = 0.1
        assert clock.steps(monitor, 130, each=1e-5) == 13
        assert monitor.cost.every == 10
        clock.steps(monitor, 20_000, each=1e-5)
        assert monitor.cost.every == 160
        assert clock.steps(monitor, 16_000, each=1e-5) >= 100
        clock.steps(monitor, 5_000, each=10.0)
        assert monitor.cost.every == 10
        assert clock.steps(monitor, 100, each=10.0) == 10


def test_long_intervals_meet_each_phase_of_a_rhythm(
    no_looks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cyclescope.LeakMonitor(every=160, devices="any") as monitor:
        clock = Clock(monkeypatch, monitor)
        at = []
        for step in range(1, 20_001):
            if clock.steps(monitor, 1, each=1.0):
                at.append(step)
    assert all(120 <= after - before <= 160 for before, after in itertools.pairwise([0, *at]))
    for period in (159, 80, 161):
        phases = [step % period for step in at]
        rises = sum(after > before for before, after in itertools.pairwise(phases))
        assert rises < 0.7 * len(phases), period


CLIPPED = growing.clipped_gradients
"""Told by what the program's code calls, and the tests are too much code to be one program."""


def test_a_leak_goes_on_beside_much_that_stays() -> None:
    stays = torch.zeros(4 << 20)
    told, monitor = watch_default(growing.once_withdrawn, growing.STEPS["once_withdrawn"])
    assert stays.numel() == 4 << 20
    assert told[-1] in monitor.found, monitor.headline


def watch_default(
    program: growing_parts.Program, steps: int
) -> tuple[list[cyclescope.Growth], cyclescope.LeakMonitor]:
    """What is told of a program with the default settings, however busy the machine is."""
    told: list[cyclescope.Growth] = []
    with cyclescope.watch_growth(devices="any", max_share=float("inf")) as monitor:
        program(steps, lambda: told.extend(monitor.step()))
    return told, monitor


@pytest.mark.parametrize("name", [each.__name__ for each in growing.LEAKS if each != CLIPPED])
def test_a_leak_is_told_with_its_owner(name: str) -> None:
    program = getattr(growing, name)
    pattern, owner = growing.LEAKS[program]
    told, monitor = watch_default(program, growing.STEPS.get(name, 200))
    assert told, monitor.headline
    assert told[0].pattern == pattern
    assert owner in told[0].owner
    assert told[0].samples >= 11
    last = [each for each in told if each.owner == told[0].owner][-1]
    assert last in monitor.found


def test_a_leak_is_told_once_wherever_the_program_has_come_to() -> None:
    told, _ = watch_default(growing.two_steps_a_pass, 600)
    assert len(told) == 1, told


@pytest.mark.parametrize("name", [each.__name__ for each in growing_look_alikes.LOOK_ALIKES])
def test_what_only_looks_like_a_leak_is_not_told(name: str) -> None:
    told, monitor = watch_default(getattr(growing_look_alikes, name), 300)
    assert told == [], monitor.headline


def test_what_is_given_back_is_withdrawn(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "cyclescope")
    kept: list[torch.Tensor] = []
    with monitor_of_all() as monitor:
        for _ in range(2 * NEEDED):
            kept.append(torch.zeros(64))
            monitor.step()
        (told,) = monitor.found
        kept.clear()
        monitor.step()
    assert monitor.found == []
    assert caplog.records[-1].getMessage() == (
        f"step {2 * NEEDED + 1}: {told.owner} has released most of what was reported at step "
        f"{told.step}"
    )
    facts = caplog.records[-1].__dict__["cyclescope"]
    assert (facts["event"], facts["owner"]) == ("growth-withdrawn", told.owner)
    assert "has released most of what was reported" in monitor.to_text()
    assert "has released most of what was reported" in monitor.to_html()
    assert [each["owner"] for each in json.loads(monitor.to_json())["cleared"]] == [told.owner]


@pytest.mark.parametrize("kind", ["tensor", "arrays"])
def test_what_becomes_shorter_is_withdrawn(kind: str) -> None:
    past = torch.zeros(1, 4)
    arrays: list[object] = []
    with monitor_of_all() as monitor:
        for step in range(60):
            if step == 40:
                assert len(monitor.found) == 1
                past = torch.zeros(1, 4)
                arrays.clear()
            if kind == "tensor":
                past = torch.cat([past, torch.zeros(1, 4)])
            else:
                arrays.append(np.ones(64))
            monitor.step()
    assert monitor.found == []


def test_each_of_several_owners_is_told() -> None:
    first: list[torch.Tensor] = []
    second: dict[int, tuple[torch.Tensor]] = {}
    with monitor_of_all() as monitor:
        for step in range(NEEDED + 2):
            first.append(torch.zeros(2**12))
            second[step] = (torch.zeros(2**14),)
            monitor.step()
    owners = [each.owner.split(" in ")[0] for each in monitor.found]
    assert owners == ["local `second`", "local `first`"]
    parts = [int(each) for each in re.findall(r"(\d+) % explained", monitor.headline)]
    assert parts == [80, 20]


def run(program: str) -> str:
    done = python("-c", program, timeout=240, check=True)
    return done.stdout


CLIPS = """
import torch, cyclescope
net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
def clear():
    {clear}
with cyclescope.watch_growth(devices="any", max_share=float("inf")) as monitor:
    for _ in range(130):
        {call}
        net(torch.ones(4, 8)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        monitor.step()
print([each.pattern for each in monitor.found])
"""


@pytest.mark.parametrize(
    ("clear", "call", "told"),
    [
        ("pass", "clear()", ["gradients-never-cleared"]),
        ("optimizer.zero_grad(set_to_none=False)", "clear()", []),
        (
            "[each.grad.zero_() for each in net.parameters() if each.grad is not None]",
            "clear()",
            [],
        ),
        ("pass", "optimizer.zero_grad()", []),
    ],
)
def test_clipped_gradients_are_told_if_no_code_clears_them(
    clear: str, call: str, told: list[str]
) -> None:
    assert run(CLIPS.format(clear=clear, call=call)).splitlines()[-1] == str(told)


def test_gradients_that_some_code_clears_are_not_told() -> None:
    net = growing_parts.network()

    def clear() -> None:
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()

    with cyclescope.LeakMonitor(devices="any", max_share=float("inf")) as monitor:
        for _ in range(130):
            clear()
            net(torch.ones(4, growing_parts.WIDTH)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            monitor.step()
    assert monitor.found == []


def test_no_variable_is_kept_alive_by_looking_at_it() -> None:
    import weakref

    kept = []

    def step(monitor: cyclescope.LeakMonitor, number: int) -> weakref.ref[torch.Tensor]:
        batch = torch.zeros(4)
        died = weakref.ref(batch)
        kept.append(torch.zeros(4))
        monitor.step()
        if number % 6 == 0:
            _native.memory_in_use("cpu", 60)
            buffers = cyclescope.heap().buffers
            (found,) = [each for each in buffers if each.pointer == batch.data_ptr()]
            assert found.owner.startswith("local `batch` in ")
        batch = torch.zeros(5)  # on CPython 3.12 and before a snapshot of the locals would keep it
        return died

    with monitor_of_all() as monitor:
        for number in range(NEEDED):
            assert step(monitor, number)() is None
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
    done = python("-c", source, timeout=60, check=True)
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
    with monitor_of_all() as monitor:
        ran.clear()
        program["loop"](owner, weight, monitor.step)  # type: ignore[operator]
        page = monitor.to_html()
        asked = list(ran)
    (found,) = monitor.found
    assert found.owner.startswith("local `owner` in `test_no_code_of_the_program_runs_")
    assert found.owner.endswith(" (Owner) → .kept")
    assert "(Owner) → .kept" in page
    assert asked == []


def test_objects_that_keep_tensors_are_told_by_the_tensors() -> None:
    kept: list[dict[str, object]] = []
    with cyclescope.LeakMonitor(every=1, devices="any", max_share=float("inf")) as monitor:
        for step in range(60):
            kept.extend({"x": torch.ones(1024), "at": [step] * 50} for _ in range(100))
            monitor.step()
    (told,) = monitor.found
    assert told.pattern == "container-grows"
    assert told.objects == 0
