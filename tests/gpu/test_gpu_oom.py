"""Memory that really runs out, for four reasons, each under a small cap; and relief in time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import cyclescope
from support.nodes import Holder

pytestmark = pytest.mark.gpu

MIB = 2**20
CAP = 1024 * MIB


@pytest.fixture
def cap() -> Iterator[None]:
    """This process may have 1 GiB."""
    torch.zeros(1, device="cuda")
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(CAP / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    gc.collect()
    torch.cuda.empty_cache()


def megabytes(count: int) -> torch.Tensor:
    return torch.zeros(count * MIB // 4, device="cuda")


def verdict_of(watch: cyclescope.OomWatch) -> str:
    (report,) = watch.reports
    text = report.read_text()
    assert report.with_suffix(".json").exists()
    assert watch.last is not None
    assert watch.last.numbers is not None
    assert watch.last.numbers.reserved <= CAP
    assert text.startswith(f"{watch.last.verdict}: ")
    return text


def test_cycle_garbage(cap: None, tmp_path: Path) -> None:
    def leak() -> None:
        for _ in range(100):
            Holder(megabytes(64))

    gc.disable()
    try:
        with cyclescope.on_oom(tmp_path) as watch, pytest.raises(torch.OutOfMemoryError):
            leak()
    finally:
        gc.enable()
    text = verdict_of(watch)
    assert text.startswith("cycles: ")
    assert "Holder.me" in text


def test_kept_losses(cap: None, tmp_path: Path) -> None:
    weight = torch.ones(1024, 1024, device="cuda", requires_grad=True)

    def evaluate() -> None:
        losses = []
        for _ in range(100):
            losses.append((torch.ones(8192, 1024, device="cuda") @ weight).tanh().mean())

    with cyclescope.on_oom(tmp_path) as watch, pytest.raises(torch.OutOfMemoryError):
        evaluate()
    text = verdict_of(watch)
    assert text.startswith("kept-graphs: local `losses` in ")


def test_fragmentation(cap: None, tmp_path: Path) -> None:
    # Large blocks share segments of 20 MiB where they are of 1 to 10 MiB.
    blocks = [megabytes(8) for _ in range(90)]
    kept = blocks[::2]
    blocks.clear()
    free = CAP - torch.cuda.memory_allocated()
    with cyclescope.on_oom(tmp_path) as watch, pytest.raises(torch.OutOfMemoryError):
        megabytes(free // MIB - 64)
    text = verdict_of(watch)
    assert text.startswith("fragmentation: ")
    assert "expandable_segments:True" in text
    del kept


def test_a_batch_that_is_too_big(cap: None, tmp_path: Path) -> None:
    layers = [torch.nn.Linear(2048, 2048).cuda() for _ in range(8)]

    def forward(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = torch.nn.functional.gelu(layer(x))
        return x

    with cyclescope.on_oom(tmp_path) as watch, pytest.raises(torch.OutOfMemoryError):
        forward(torch.ones(16 * 1024, 2048, device="cuda"))
    assert verdict_of(watch).startswith("batch-too-big: ")


def test_one_large_request_beside_what_is_needed(cap: None, tmp_path: Path) -> None:
    layer = torch.nn.Linear(2048, 2048).cuda()
    queries = torch.ones(8 * 1024, 2048, device="cuda")

    def attend() -> torch.Tensor:
        with torch.no_grad():
            scores: torch.Tensor = layer(queries) @ queries.T.repeat(1, 2)
            return scores

    kept = [megabytes(100) for _ in range(3)]

    torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python")
    try:
        with cyclescope.on_oom(tmp_path) as watch, pytest.raises(torch.OutOfMemoryError):
            attend()
    finally:
        torch.cuda.memory._record_memory_history(None)
    assert verdict_of(watch).startswith("batch-too-big: 512.0 MiB were requested at once")
    del kept


def test_each_retry_with_half_the_batch_is_told(cap: None, tmp_path: Path) -> None:
    layers = [torch.nn.Linear(2048, 2048).cuda() for _ in range(8)]

    def forward(size: int) -> None:
        x = torch.ones(size, 2048, device="cuda")
        for layer in layers:
            x = torch.nn.functional.gelu(layer(x))

    verdicts = []
    with cyclescope.on_oom(tmp_path) as watch:
        for size in (64 * 1024, 32 * 1024, 16 * 1024):
            with pytest.raises(torch.OutOfMemoryError):
                forward(size)
            assert watch.last is not None
            verdicts.append(watch.last.verdict)
    assert verdicts == ["batch-too-big"] * 3


def test_garbage_is_a_part_of_the_bar_and_no_growth(cap: None, tmp_path: Path) -> None:
    def leak() -> None:
        with cyclescope.LeakMonitor(every=1, min_bytes=0, max_share=float("inf")) as monitor:
            for _ in range(100):
                Holder(megabytes(32))
                monitor.step()

    gc.disable()
    try:
        with cyclescope.on_oom(tmp_path) as watch, pytest.raises(torch.OutOfMemoryError):
            leak()
    finally:
        gc.enable()
    text = verdict_of(watch)
    assert text.startswith("cycles: ")
    assert text.index("Unreachable cycles hold") < text.index("Memory of cuda:0")
    assert watch.last is not None
    assert watch.last.roles["garbage in cycles"] > 0.9 * CAP
    assert not watch.last.growth


def test_the_snapshot_lies_beside_it_if_history_is_recorded(cap: None, tmp_path: Path) -> None:
    torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python")
    try:
        with cyclescope.on_oom(tmp_path) as watch, pytest.raises(torch.OutOfMemoryError):
            megabytes(2048)
    finally:
        torch.cuda.memory._record_memory_history(None)
    verdict_of(watch)
    (report,) = watch.reports
    assert report.with_suffix(".pickle").stat().st_size > 0


def test_memory_runs_out_in_a_backward_pass(cap: None, tmp_path: Path) -> None:
    x = torch.ones(4096, 8192, device="cuda", requires_grad=True)
    y = x.square().square()
    free = CAP - torch.cuda.memory_reserved()
    filler = megabytes(free // MIB - 64)
    with cyclescope.on_oom(tmp_path) as watch, pytest.raises(torch.OutOfMemoryError):
        y.sum().backward()  # type: ignore[no-untyped-call]
    assert "a backward pass is running" in verdict_of(watch)
    del filler


def test_pressure_is_relieved_before_memory_runs_out(cap: None) -> None:
    gc.disable()
    try:
        with (
            cyclescope.warn_tensor_cycles() as watch,
            cyclescope.collect_on_pressure(0.6) as relief,
        ):
            Holder(megabytes(1))
            gc.collect()
            assert watch.flush(60)
            for _ in range(30):
                Holder(megabytes(64))
                _wait_for(relief)
    finally:
        gc.enable()
    assert relief.collections
    assert relief.bytes_freed >= 500 * MIB


def _wait_for(relief: Any) -> None:
    """A step of Python code, longer while memory is short."""
    import time

    end = time.monotonic() + (0.02 if torch.cuda.memory_allocated() < 0.6 * CAP else 3.0)
    while time.monotonic() < end and (
        torch.cuda.memory_allocated() >= 0.6 * CAP or end - time.monotonic() < 0.02
    ):
        pass


@pytest.mark.parametrize("name", ["losses_kept", "hidden_state", "model_copies"])
def test_growth_is_named_on_the_gpu(name: str) -> None:

    import shared

    program = shared.load(name)
    for loop, patterns in ((program.pitfall, [program.EXPECTED.pattern]), (program.look_alike, [])):
        with cyclescope.LeakMonitor(every=1, min_bytes=0, max_share=float("inf")) as monitor:
            loop("cuda", 20, monitor.step)
        assert [each.pattern for each in monitor.found] == patterns


def test_a_redacted_post_mortem_has_no_secret_and_no_snapshot(cap: None, tmp_path: Path) -> None:
    kept = {"the-secret": [megabytes(64)]}
    torch.cuda.memory._record_memory_history()
    try:
        with (
            cyclescope.on_oom(tmp_path / "open") as plain,
            pytest.raises(torch.OutOfMemoryError),
        ):
            kept["the-secret"].extend(megabytes(64) for _ in range(100))
        del kept["the-secret"][:]
        with (
            cyclescope.on_oom(tmp_path / "redacted", redact=True) as redacted,
            pytest.raises(torch.OutOfMemoryError),
        ):
            kept["the-secret"].extend(megabytes(64) for _ in range(100))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    del kept["the-secret"][:]
    (told,), (hidden,) = plain.reports, redacted.reports
    assert "the-secret" in told.read_text()
    suffixes = {file.suffix for file in hidden.parent.iterdir()}
    assert suffixes == {".txt", ".json", ".html"}
    assert {file.suffix for file in told.parent.iterdir()} == suffixes | {".pickle"}
    for file in hidden.parent.iterdir():
        assert "the-secret" not in file.read_text()
