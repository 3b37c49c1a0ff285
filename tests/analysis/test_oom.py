"""The post-mortem of an out-of-memory error, with stand-ins for PyTorch's allocator."""

from __future__ import annotations

import gc
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cyclescope
from cyclescope import _native
from cyclescope._live import oom, postmortem
from support.nodes import Holder
from support.processes import python

try:
    import torch
except ImportError:
    pytest.skip("PyTorch's allocator is what runs out", allow_module_level=True)

MIB = 2**20
GIB = 2**30


# The observer, with PyTorch's functions stood in for at their own signatures


class Allocator:
    """What PyTorch answers of a device whose blocks are tensors in host memory."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.observers: list[Callable[[int, int, int, int], None]] = []
        self.tensors: list[tuple[int, int]] = []

    def block(self, tensor: Any) -> Any:
        """Count a tensor's storage as a segment of its own."""
        storage = tensor.untyped_storage()
        self.tensors.append((storage.data_ptr(), storage.nbytes()))
        return tensor

    def attach(self, observer: Callable[[int, int, int, int], None]) -> None:
        self.observers.append(observer)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        return [
            {
                "device": 0,
                "address": address,
                "total_size": size,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "blocks": [
                    {"size": size, "address": address, "state": "active_allocated", "frames": []}
                ],
            }
            for address, size in self.tensors
        ]

    def stats(self, device: int) -> dict[str, Any]:
        used = {"all": {"current": sum(size for _, size in self.tensors)}}
        return {"reserved_bytes": used, "allocated_bytes": used}

    def fail(self, requested: int) -> None:
        """As the allocator does before it raises."""
        for observer in self.observers:
            observer(0, requested, self.limit, 0)


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Allocator]:
    stand_in = Allocator(GIB)
    native = torch._C
    for name, function in {
        "_cuda_attach_out_of_memory_observer": stand_in.attach,
        "_cuda_memoryStats": stand_in.stats,
        "_cuda_isHistoryEnabled": lambda: False,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_isCurrentStreamCapturing": lambda: False,
        "_cuda_getCurrentRawStream": lambda device: 0,
    }.items():
        monkeypatch.setattr(native, name, function, raising=False)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", stand_in.snapshot)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda function: function())
    monkeypatch.setattr(oom, "_attached", False)

    class Examiner(postmortem.Examiner):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._parts = _native.Examination("cpu", 0.0)

    monkeypatch.setattr(oom, "Examiner", Examiner)
    gc.collect()
    gc.disable()
    yield stand_in
    gc.enable()


def texts(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob("*.txt"))]


def test_garbage_in_cycles_is_told_with_its_trace(allocator: Allocator, tmp_path: Path) -> None:
    with cyclescope.on_oom(tmp_path) as watch:
        alive = {"by": allocator.block(torch.zeros(4 * MIB))}
        for _ in range(3):
            Holder(allocator.block(torch.zeros(4 * MIB)))
        allocator.fail(40 * MIB)
        allocator.fail(60 * MIB)
    del alive
    first, second = texts(tmp_path)
    assert first.startswith("cycles: reference cycles hold 48.0 MiB of garbage")
    assert "Holder.me" in first
    assert second.startswith("unclear: ")
    assert "Unreachable cycles hold 48.0 MiB" in second
    assert watch.errors == 2
    assert watch.state == "installed"
    found = json.loads(sorted(tmp_path.glob("*.json"))[0].read_text())
    assert (found["schema"], found["verdict"]) == (1, "cycles")
    assert found["cycles"]["bytes"] == 48 * MIB
    assert found["numbers"]["requested"] == 40 * MIB


def test_several_watches_of_one_folder_write_once(allocator: Allocator, tmp_path: Path) -> None:
    """As ``cyclescope run --oom`` and a program's own ``on_oom()`` do."""
    with (
        cyclescope.on_oom() as first,
        cyclescope.on_oom() as second,
        cyclescope.on_oom(tmp_path) as elsewhere,
    ):
        allocator.fail(40 * MIB)
        allocator.fail(40 * MIB)
    assert len(first.reports) == 2
    assert second.reports == first.reports
    assert second.last is first.last
    assert second.report_dir == first.report_dir
    assert len(list(first.reports[0].parent.glob("*.txt"))) == 2
    assert len(texts(tmp_path)) == 2
    assert [watch.errors for watch in (first, second, elsewhere)] == [2, 2, 2]


def test_the_page_has_the_numbers_the_owners_and_what_grew(
    allocator: Allocator, tmp_path: Path
) -> None:
    kept = []
    with (
        cyclescope.LeakMonitor(every=1, devices="any", max_share=float("inf")) as monitor,
        cyclescope.on_oom(tmp_path) as watch,
    ):
        for _ in range(16):
            kept.append(allocator.block(torch.zeros(MIB)))
            monitor.step()
        allocator.fail(600 * MIB)
    (report,) = watch.reports
    page = report.with_suffix(".html").read_text()
    for told in (
        "Out of memory on cpu",
        "600.0 MiB",
        'role="tree"',
        "accumulates tensors",
        ">by step<",
    ):
        assert told in page, told
    found = json.loads(report.with_suffix(".json").read_text())
    assert not {"heap", "history"} & set(found)
    assert watch.last is not None
    assert not hasattr(watch.last, "heap"), "the program is to have the memory"
    assert "Out of memory on cpu" in watch.last.to_html()


def test_what_one_container_has_is_told_as_one(allocator: Allocator, tmp_path: Path) -> None:
    kept = [allocator.block(torch.zeros(MIB)) for _ in range(20)]
    single = allocator.block(torch.zeros(3 * MIB))
    with cyclescope.on_oom(tmp_path) as watch:
        allocator.fail(600 * MIB)
    assert watch.last is not None
    told = [(each.what, each.bytes) for each in watch.last.owners]
    ((words, size),) = [it for it in told if "`kept`" in it[0]]
    assert size == len(kept) * kept[0].nbytes
    assert words.endswith(f"→ [each] → Tensor: 20 buffers, the largest float32[{MIB}]"), words
    ((words, size),) = [it for it in told if "`single`" in it[0]]
    assert words.endswith(f": float32[{3 * MIB}]"), words
    assert size == single.nbytes


def test_without_a_page_text_and_json_are_there(
    allocator: Allocator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(examiner: postmortem.Examiner) -> str:
        raise ValueError("no page today")

    monkeypatch.setattr(postmortem.Examiner, "page", refuse)
    with cyclescope.on_oom(tmp_path) as watch:
        allocator.fail(MIB)
    (report,) = watch.reports
    assert report.exists()
    assert report.with_suffix(".json").exists()
    assert not report.with_suffix(".html").exists()


def test_kept_graphs_are_told_with_what_only_they_keep(
    allocator: Allocator, tmp_path: Path
) -> None:
    weight = allocator.block(torch.ones(1024, 1024, requires_grad=True))
    with cyclescope.on_oom(tmp_path) as watch:
        alive = {"by": allocator.block(torch.zeros(16 * MIB))}
        losses = []
        for _ in range(4):
            x = allocator.block(torch.ones(4096, 1024))
            losses.append((x @ weight).sum())
        del x
        allocator.fail(48 * MIB)
        assert watch.last is not None
        assert watch.last.verdict == "kept-graphs"
        (kept,) = watch.last.graphs
        # Three of four: the last may be in use.
        assert kept.bytes >= 3 * 16 * MIB
        assert kept.what.startswith("local `losses` in ")
        allocator.fail(80 * MIB)
        assert watch.last.verdict == "unclear"
        del alive


class Log:
    """Keeps losses."""

    def __init__(self) -> None:
        weight = torch.ones(8, 8, requires_grad=True)
        self.losses = [(torch.ones(8, 8) @ weight).sum() for _ in range(4)]


def test_what_the_look_itself_holds_is_never_named(allocator: Allocator, tmp_path: Path) -> None:
    """What it works with is younger than the program's objects, so a look finds it first."""
    logs = {name: Log() for name in ("training", "evaluation")}
    gc.collect()
    with (
        cyclescope.LeakMonitor(every=1, devices="any", max_share=float("inf")) as monitor,
        cyclescope.on_oom(tmp_path) as watch,
    ):
        monitor.step()
        allocator.fail(MIB)
    assert watch.last is not None
    owners = sorted(each.what.partition(":")[0] for each in watch.last.graphs)
    assert len(owners) == len(logs)
    for each in [*watch.last.graphs, *watch.last.owners]:
        assert not {"cyclescope", "Collection"} & set(re.split(r"\W+", each.what)), each.what
    assert all(".losses" in each.what for each in watch.last.graphs)


def test_a_batch_that_is_too_big_is_told(allocator: Allocator, tmp_path: Path) -> None:
    def forward(x: Any) -> None:
        hidden = allocator.block(layer(x))
        allocator.fail(64 * MIB)
        del hidden

    layer = torch.nn.Linear(1024, 1024)
    for parameter in layer.parameters():
        allocator.block(parameter)
    with cyclescope.on_oom(tmp_path) as watch:
        forward(allocator.block(torch.ones(8192, 1024)))
    assert watch.last is not None
    assert watch.last.verdict == "batch-too-big"
    # Tests before this one may have left a few that no collection frees.
    assert 4 * MIB + 4096 <= watch.last.roles["parameters"] < 5 * MIB


def test_a_large_request_beside_what_is_needed_is_too_big(
    allocator: Allocator, tmp_path: Path
) -> None:
    kept = [allocator.block(torch.zeros(10 * MIB)) for _ in range(4)]
    with cyclescope.on_oom(tmp_path) as watch:
        allocator.fail(100 * MIB)
        assert watch.last is not None
        assert watch.last.verdict == "batch-too-big"
        assert "100.0 MiB were requested at once, more than twice the largest" in (
            watch.last.headline
        )
        allocator.fail(70 * MIB)
        assert watch.last.verdict == "unclear"
    del kept


def test_garbage_is_drawn_as_garbage_and_told_first(allocator: Allocator, tmp_path: Path) -> None:
    alive = {"by": allocator.block(torch.zeros(4 * MIB))}
    for _ in range(3):
        Holder(allocator.block(torch.zeros(4 * MIB)))
    with cyclescope.on_oom(tmp_path) as watch:
        allocator.fail(40 * MIB)
        allocator.fail(60 * MIB)
    assert watch.last is not None
    # Tests before this one may have left a little that no collection frees.
    assert 48 * MIB <= watch.last.roles["garbage in cycles"] < 49 * MIB
    assert watch.last.roles["other tensors"] >= 16 * MIB
    first, second = (report.read_text() for report in watch.reports)
    assert first.index("Unreachable cycles hold") < first.index("Memory of cpu")
    page = watch.reports[0].with_suffix(".html").read_text()
    # First the bar, in which the request stands where it would fit, then the leak.
    assert "where it would fit without the garbage" in page
    assert page.index("Unreachable cycles hold") < page.index("<h2>Owners</h2>")
    assert 'class="block garbage"' in page
    assert second.startswith("unclear: ")
    assert "48.0 MiB of garbage in reference cycles are a part of it" in second
    assert "Break the cycles" in second
    assert "watch_growth" not in second
    del alive


def test_no_time_is_said(allocator: Allocator, tmp_path: Path) -> None:
    with cyclescope.on_oom(tmp_path, seconds=1e-9) as watch:
        allocator.fail(MIB)
    assert watch.last is not None
    assert any(each.startswith("cycles: no time") for each in watch.last.left_out)
    assert any(each.startswith("live tensors: no time") for each in watch.last.left_out)


def test_nothing_leaves_the_observer(
    allocator: Allocator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(device: int) -> Any:
        raise RuntimeError("the allocator says no")

    monkeypatch.setattr(torch._C, "_cuda_memoryStats", refuse)
    caplog.set_level(logging.ERROR, "cyclescope")
    with cyclescope.on_oom(tmp_path / "new"):
        allocator.fail(MIB)
        (text,) = texts(tmp_path / "new")
        assert "the allocator says no" in text
        (tmp_path / "new").joinpath("x").write_text("")
        monkeypatch.setattr(oom, "write_whole", refuse)
        allocator.fail(MIB)
    assert "the post-mortem failed" in caplog.text
    assert not oom._busy


def test_it_does_nothing_after_stop_and_is_attached_once(
    allocator: Allocator, tmp_path: Path
) -> None:
    for _ in range(3):
        cyclescope.on_oom(tmp_path).stop()
    assert len(allocator.observers) == 1
    allocator.fail(MIB)
    assert texts(tmp_path) == []


def test_collection_is_as_it_was_and_finalizers_do_not_run(
    allocator: Allocator, tmp_path: Path
) -> None:
    ran = []

    class Finalized(Holder):
        def __del__(self) -> None:
            ran.append(1)

    gc.enable()
    with cyclescope.on_oom(tmp_path):
        Finalized(None)
        allocator.fail(MIB)
        assert not ran
        assert gc.isenabled()


def test_a_program_that_tries_again_gets_a_few_reports(
    allocator: Allocator, tmp_path: Path
) -> None:
    with cyclescope.on_oom(tmp_path, seconds=0.01) as watch:
        for _ in range(oom.MAX_REPORTS + 3):
            allocator.fail(MIB)
    assert len(watch.reports) == oom.MAX_REPORTS
    assert watch.errors == oom.MAX_REPORTS + 3


def test_it_waits_for_pytorch_and_initialises_nothing(tmp_path: Path) -> None:
    source = (
        "import sys, time, cyclescope\n"
        f"watch = cyclescope.on_oom({str(tmp_path)!r})\n"
        "print(watch.state)\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "deadline = time.monotonic() + 60\n"
        "while watch.state.startswith('waiting') and time.monotonic() < deadline:\n"
        "    time.sleep(0.01)\n"
        "print(watch.state)\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    done = python("-c", source, timeout=120)
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.splitlines()
    assert before.startswith("waiting")
    assert after in (
        "installed when the program initialises CUDA",
        "this PyTorch is built without CUDA",
    )


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_that_is_none_is_refused(seconds: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seconds must be a positive number"):
        cyclescope.on_oom(tmp_path, seconds=seconds)
