"""The post-mortem of an out-of-memory error, with stand-ins for PyTorch's allocator."""

from __future__ import annotations

import gc
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cyclescope
from cyclescope._live import oom, postmortem, verdict
from cyclescope._live.allocator import Numbers, Segment, would_fit
from support.nodes import Holder

try:
    import torch
except ImportError:
    pytest.skip("PyTorch's allocator is what runs out", allow_module_level=True)

MIB = 2**20
GIB = 2**30


def numbers(requested: int, *, limit: int = GIB, free: int = 0, reserved: int = GIB) -> Numbers:
    return Numbers(
        device=0,
        requested=requested,
        limit=limit,
        free=free,
        reserved=reserved,
        allocated=reserved // 2,
        elsewhere=0,
        largest_free_block=0,
        free_in_blocks=0,
        private=0,
    )


def segment(*sizes: int, **more: Any) -> Segment:
    """A segment of blocks in MiB; those that are not in use are negative."""
    address = 0x1000 * MIB * (1 + int(more.pop("at", 0)))
    blocks = []
    for size in sizes:
        blocks.append((address, abs(size) * MIB, size > 0))
        address += abs(size) * MIB
    settings = {
        "is_large": True,
        "is_expandable": False,
        "stream": 0,
        "is_private": False,
    } | more
    return Segment(bytes=sum(map(abs, sizes)) * MIB, blocks=tuple(blocks), **settings)


# Would it fit?


def test_neighbouring_blocks_become_one() -> None:
    whole = segment(8, 8, 8, 40)
    blocks = [address for address, _, _ in whole.blocks]
    asked = numbers(16 * MIB)
    assert not would_fit(asked, [whole], [])
    assert not would_fit(asked, [whole], [blocks[0], blocks[2]])
    assert would_fit(asked, [whole], [blocks[0], blocks[1]])


def test_whole_segments_go_back_and_are_taken_anew() -> None:
    three = [segment(20, at=1), segment(20, at=2), segment(20, -12, at=3)]
    asked = numbers(40 * MIB)
    first = [each.blocks[0][0] for each in three]
    assert not would_fit(asked, three, [first[0], first[2]][:1])
    assert would_fit(asked, three, first[:2])
    assert would_fit(asked, three, [first[0], first[2]])


def test_blocks_of_other_kinds_do_not_help() -> None:
    asked = numbers(16 * MIB)
    for other in ({"stream": 7}, {"is_large": False}, {"is_private": True}):
        whole = segment(32, 2, **other)
        assert not would_fit(asked, [whole], [whole.blocks[0][0]], 0)
    private = segment(32, is_private=True)
    assert not would_fit(asked, [private], [private.blocks[0][0]])


def test_expandable_segments_give_pieces_back() -> None:
    whole = segment(40, 2, 40, is_expandable=True)
    addresses = [whole.blocks[0][0], whole.blocks[2][0]]
    assert would_fit(numbers(80 * MIB), [whole], addresses)
    assert not would_fit(numbers(100 * MIB), [whole], addresses)


def test_no_more_than_the_limit_is_taken_from_the_driver() -> None:
    assert would_fit(numbers(MIB, free=GIB, reserved=0), [], [])
    assert not would_fit(numbers(MIB, free=GIB, reserved=GIB), [], [])


# The verdict


def judged(known: Numbers, *, too_big: bool = False, **found: Any) -> postmortem.PostMortem:
    result = postmortem.PostMortem(device="cuda:0", numbers=known, **found)
    verdict.judge(result, too_big=too_big, needs=(0, 0))
    return result


def test_each_verdict_needs_its_proof() -> None:
    asked = numbers(512 * MIB)
    fits = postmortem.Finding("cycles", 600 * MIB, would_fit=True)
    not_enough = replace(fits, would_fit=False)
    fragments = replace(asked, free_in_blocks=600 * MIB, largest_free_block=64 * MIB)
    grown = {"summary": "x grows", "bytes": 600 * MIB, "advice": "stop it"}
    assert judged(asked, cycles=fits).verdict == "cycles"
    assert judged(asked, cycles=not_enough).verdict == "unclear"
    assert judged(asked, graphs=[fits]).verdict == "kept-graphs"
    assert judged(asked, graphs=[not_enough]).verdict == "unclear"
    assert judged(fragments).verdict == "fragmentation"
    assert judged(replace(fragments, free_in_blocks=500 * MIB)).verdict == "unclear"
    assert judged(numbers(2 * GIB)).verdict == "batch-too-big"
    assert judged(asked, too_big=True).verdict == "batch-too-big"
    assert judged(asked, growth=[grown]).verdict == "growth"
    crowded = replace(asked, limit=8 * GIB, elsewhere=7 * GIB, free=64 * MIB)
    assert judged(crowded).verdict == "elsewhere"
    assert judged(crowded, too_big=True).verdict == "elsewhere"
    assert judged(replace(crowded, limit=GIB)).verdict == "unclear"
    assert judged(replace(crowded, limit=GIB), too_big=True).verdict == "batch-too-big"
    assert judged(asked).verdict == "unclear"


def test_the_text_begins_with_the_verdict_and_names_the_setting() -> None:
    fragments = replace(numbers(512 * MIB), free_in_blocks=600 * MIB, largest_free_block=64 * MIB)
    text = verdict.as_text(judged(fragments, left_out=["cycles: no time left"]))
    assert text.startswith("fragmentation: 600.0 MiB are free but fragmented")
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text
    assert "Not examined:\n  cycles: no time left" in text


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
            self._device = self.found.device = "cpu"

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
        ">step<",
    ):
        assert told in page, told
    found = json.loads(report.with_suffix(".json").read_text())
    assert not {"heap", "history"} & set(found)
    assert watch.last is not None
    assert watch.last.heap is None, "the program is to have the memory"
    assert "Out of memory on cpu" in watch.last.to_html()


def test_without_a_page_text_and_json_are_there(
    allocator: Allocator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(found: postmortem.PostMortem) -> str:
        raise ValueError("no page today")

    monkeypatch.setattr(postmortem.PostMortem, "to_html", refuse)
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
    assert watch.last.roles["parameters"] == 4 * MIB + 4096


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
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=False
    )
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
