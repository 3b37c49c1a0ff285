"""All of a GPU's memory, divided by use: programs that each make one use large."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import cyclescope

pytestmark = pytest.mark.gpu

MIB = 2**20
SIZE = 256 * MIB
kept: list[Any] = []


class Node:
    """An object with a tensor."""

    def __init__(self, size: int = SIZE) -> None:
        self.tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        self.me: Node | None = None


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    gc.collect()
    gc.disable()
    torch.cuda.empty_cache()
    yield
    kept.clear()
    gc.enable()
    gc.collect()
    torch.cuda.empty_cache()


def numbers() -> dict[str, int]:
    memory = cyclescope.memory()
    assert sum(row.bytes for row in memory.rows) == memory.in_use
    free, total = torch.cuda.mem_get_info()
    assert memory.total == total
    assert abs(memory.free - free) < total // 100
    assert all(row.freed_by for row in memory.rows)
    return {row.name: row.bytes for row in memory.rows}


def parameters() -> None:
    kept.append(torch.nn.Linear(8192, 8192, device="cuda"))


def gradients() -> None:
    layer = torch.nn.Linear(8192, 8192, device="cuda")
    layer(torch.ones(1, 8192, device="cuda")).sum().backward()
    kept.append(layer)


def optimizer_state() -> None:
    layer = torch.nn.Linear(8192, 4096, device="cuda")
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 8192, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    kept.extend([layer, optimizer])


def activations() -> None:
    layer = torch.nn.Linear(16, 8192, device="cuda")
    kept.append(layer(torch.ones(8192, 16, device="cuda")).tanh().exp().sum())


def others() -> None:
    kept.append(torch.empty(SIZE, dtype=torch.uint8, device="cuda"))


def garbage() -> None:
    node = Node()
    node.me = node


def cached() -> None:
    torch.empty(SIZE, dtype=torch.uint8, device="cuda")


def fragmented() -> None:
    pieces = [torch.empty(MIB // 2, dtype=torch.uint8, device="cuda") for _ in range(1024)]
    kept.extend(pieces[::2])


def waiting() -> None:
    cuda: Any = torch.cuda
    stream = cuda.Stream()
    tensor = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    with cuda.stream(stream):
        cuda._sleep(5_000_000_000)
        tensor.record_stream(stream)


def private_pool() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    kept.append(pool)


def graph() -> None:
    captured = torch.cuda.CUDAGraph()
    source = torch.ones(SIZE // 4, device="cuda")
    with torch.cuda.graph(captured):
        (source * 2 + 1).sum()
    kept.append(captured)


def outside() -> None:
    cupy = pytest.importorskip("cupy")
    kept.append(cupy.cuda.memory.Memory(SIZE))


def cupy_pool() -> None:
    cupy = pytest.importorskip("cupy")
    kept.append(cupy.zeros(SIZE, dtype=cupy.uint8))


USES = {
    "parameters": parameters,
    "gradients": gradients,
    "optimizer state": optimizer_state,
    "activations that autograd keeps": activations,
    "other tensors": others,
    "garbage in reference cycles": garbage,
    "cached by PyTorch": cached,
    "free between blocks in use": fragmented,
    "freed, and still used by a stream": waiting,
    "free in the private pool": private_pool,
    "free in the pool of CUDA graph": graph,
    "outside PyTorch": outside,
    "arrays of CuPy": cupy_pool,
}


ALSO = {
    "gradients": ["parameters"],
    "optimizer state": ["parameters", "cached by PyTorch"],
    "activations that autograd keeps": ["inputs that autograd keeps", "cached by PyTorch"],
    "free between blocks in use": ["other tensors"],
    "free in the pool of CUDA graph": ["other tensors", "cached by PyTorch"],
}
"""What grows as well, beside what CUDA loads outside PyTorch when it is first used."""


@pytest.mark.parametrize(("name", "make"), USES.items(), ids=list(USES))
def test_what_is_made_large_is_the_row_that_grows(name: str, make: Callable[[], None]) -> None:
    torch.empty(1, device="cuda")
    before = numbers()
    make()
    after = numbers()
    torch.cuda.synchronize()
    grown = {
        row: size - before.get(row, 0) for row, size in after.items() if size > before.get(row, 0)
    }
    meant = [more for row, more in grown.items() if row.startswith(name)]
    assert sum(meant) > SIZE * 0.9, grown
    assert all(
        more < SIZE / 2
        for row, more in grown.items()
        if not row.startswith(name) and row not in [*ALSO.get(name, ()), "outside PyTorch"]
    ), grown


def test_the_leak_of_garbage_and_the_owner_of_what_lives_are_named() -> None:
    garbage()
    others()
    rows = {row.name: row for row in cyclescope.memory().rows}
    (leak,) = rows["garbage in reference cycles"].holders
    assert "Node.me" in leak.name
    assert leak.bytes == SIZE
    assert any("kept" in holder.name for holder in rows["other tensors"].holders)
    text = str(cyclescope.memory())
    assert "gc.collect()" in text
    assert all(len(line) <= 100 for line in text.splitlines()), text


def test_frozen_garbage_has_a_row_of_its_own() -> None:
    garbage()
    gc.freeze()
    try:
        assert numbers()["frozen garbage"] == SIZE
    finally:
        gc.unfreeze()


def test_pinned_memory_has_a_row_of_its_own() -> None:
    """It counts what a deleted tensor had for as long as PyTorch keeps it for the next one."""
    if not hasattr(torch._C, "_cuda_hostMemoryStats"):
        assert cyclescope.memory().host == []  # This version of PyTorch does not say.
        return

    def host() -> int:
        return sum(row.bytes for row in cyclescope.memory().host)

    before = host()
    pinned = torch.empty(SIZE, dtype=torch.uint8, pin_memory=True)
    assert host() - before == SIZE
    assert "pinned tensors, and cached" in cyclescope.memory().to_html()
    del pinned
    assert host() - before == SIZE
    torch._C._host_emptyCache()
    assert host() <= before


def test_run_writes_a_page_for_each_gpu(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import torch\nkept = torch.empty(2**28, dtype=torch.uint8, device='cuda')\n"
    )
    arguments = ["run", "--memory", "--report-dir", str(tmp_path / "pages"), str(program)]
    done = subprocess.run(
        [sys.executable, "-m", "cyclescope", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "cyclescope: memory: cuda:0: " in done.stderr
    (page,) = (tmp_path / "pages").glob("memory-*.html")
    assert f"cyclescope: memory report: {page}" in done.stderr
    assert "kept" in page.read_text()


def test_asking_changes_nothing() -> None:
    garbage()
    others()
    before = torch.cuda.memory_stats(), gc.get_count()[2], gc.isenabled()
    cyclescope.memory("cuda:0")
    after = torch.cuda.memory_stats(), gc.get_count()[2], gc.isenabled()
    assert before == after


@pytest.mark.parametrize("device", ["cpu", "cuda:99", 99, "gpu", -1])
def test_what_is_no_gpu_is_refused(device: object) -> None:
    with pytest.raises(ValueError, match="the GPUs are cuda:0"):
        cyclescope.memory(device)
