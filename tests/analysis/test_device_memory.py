"""The memory of a device divided by use, without a GPU: the pieces of host memory stand for it."""

from __future__ import annotations

import gc
import html
import random
from typing import Any

import numpy
import pytest

import cyclescope
from cyclescope import _native
from cyclescope._live.allocator import pinned_bytes

pytestmark = pytest.mark.usefixtures("collector_paused")

KIB = 2**10


class Node:
    """An object with an array."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.me: Node | None = None


def block(address: int, size: int, state: str = "active_allocated") -> dict[str, Any]:
    return {"address": address, "size": size, "state": state}


def segment(blocks: list[dict[str, Any]], pool: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    return {
        "address": blocks[0]["address"],
        "total_size": sum(each["size"] for each in blocks),
        "segment_type": "large",
        "segment_pool_id": pool,
        "blocks": blocks,
    }


def test_each_byte_is_in_one_row() -> None:
    """Segments of random blocks, some of them with an array of the program."""
    chance = random.Random(7)
    for _ in range(4):
        live = [numpy.zeros(4 * KIB, numpy.uint8) for _ in range(chance.randrange(5))]
        lost = [Node(numpy.zeros(4 * KIB, numpy.uint8)) for _ in range(chance.randrange(5))]
        addresses = [each.ctypes.data for each in live], [each.array.ctypes.data for each in lost]
        for node in lost:
            node.me = node
        if lost:
            del node
        lost.clear()
        expected = dict.fromkeys(
            ("live", "lost", "unseen", "waiting", "cached", "mixed", "pool"), 0
        )
        segments: list[dict[str, Any]] = []
        # An array in a block that is larger: what the allocator adds is of the same use.
        for name, known in zip(("live", "lost"), addresses, strict=True):
            for address in known:
                size = 4 * KIB + 512 * chance.randrange(3)
                segments.append(segment([block(address, size)]))
                expected[name] += size
        at = 1 << 50
        for _ in range(chance.randrange(12)):
            states = chance.choices(["active_allocated", "active_pending_free", "inactive"], k=3)
            pool = chance.choice([(0, 0), (0, 0), (0, 3), (4, 0)])
            blocks = [block(at + i * KIB, KIB, state) for i, state in enumerate(states)]
            segments.append(segment(blocks, pool))
            unused = states.count("inactive") * KIB
            expected["unseen"] += states.count("active_allocated") * KIB
            expected["waiting"] += states.count("active_pending_free") * KIB
            kind = "pool" if pool != (0, 0) else "cached" if unused == 3 * KIB else "mixed"
            expected[kind] += unused
            at += 1 << 20
        reserved = sum(each["total_size"] for each in segments)
        used = reserved + 7 * KIB
        pools = [("arrays of another framework", 2 * KIB, "deleting them")]
        memory = _native.device_memory("cpu", (1 << 30, (1 << 30) - used, 0.0), segments, pools)
        rows = {row.name: row.bytes for row in memory.rows}
        assert sum(rows.values()) == memory.in_use == used
        found = {
            "live": rows.get("other tensors", 0),
            "lost": rows.get("garbage in reference cycles", 0),
            "unseen": rows.get("held by no Python object", 0),
            "waiting": rows.get("freed, and still used by a stream", 0),
            "cached": rows.get("cached by PyTorch", 0),
            "mixed": rows.get("free between blocks in use", 0),
            "pool": sum(size for name, size in rows.items() if "pool" in name),
        }
        assert found == expected
        assert rows["outside PyTorch"] == 5 * KIB
        assert rows["arrays of another framework"] == 2 * KIB
        del live
        gc.collect()


def test_the_text_names_holders_and_what_frees() -> None:
    kept = [numpy.zeros(4 * KIB, numpy.uint8)]
    node = Node(numpy.zeros(8 * KIB, numpy.uint8))
    node.me = node
    places = kept[0].ctypes.data, node.array.ctypes.data
    del node
    segments = [segment([block(places[0], 4 * KIB)]), segment([block(places[1], 8 * KIB)])]
    memory = _native.device_memory("cpu", (64 * KIB, 52 * KIB, 0.0), segments, [])
    text = str(memory)
    lines = text.splitlines()
    assert lines[0] == "cpu: 12.0 KiB of 64.0 KiB are in use, 52.0 KiB are free."
    assert "67 %  garbage in reference cycles" in text
    assert "Node.me → Node" in text
    assert "freed by `gc.collect()`" in text
    assert "`kept`" in text
    assert memory.to_json().startswith("{")
    gc.collect()


def test_pinned_memory_has_a_row_of_its_own() -> None:
    memory = _native.device_memory("cpu", (64 * KIB, 52 * KIB, 0.0), [], [], pinned=4 * KIB)
    assert sum(row.bytes for row in memory.rows) == memory.in_use == 12 * KIB
    assert [row.bytes for row in memory.host] == [4 * KIB]
    assert "Pinned host memory: 4.0 KiB." in str(memory)
    assert "100 %  pinned tensors, and cached for new ones" in str(memory)
    none = _native.device_memory("cpu", (64 * KIB, 52 * KIB, 0.0), [], [])
    assert none.host == []
    assert "Pinned" not in str(none) + none.to_html()


def test_the_page_has_each_row_and_is_safe() -> None:
    kept = {"<script>": numpy.zeros(4 * KIB, numpy.uint8)}
    segments = [segment([block(kept["<script>"].ctypes.data, 4 * KIB)])]
    pools = [("arrays of <b>another</b>", 2 * KIB, "deleting `them`")]
    memory = _native.device_memory("cpu", (64 * KIB, 52 * KIB, 0.0), segments, pools, pinned=KIB)
    page = memory.to_html()
    for row in (*memory.rows, *memory.host):
        assert html.escape(row.name, quote=False) in page
    assert page.lower().startswith("<!doctype html>")
    assert "cpu: 12.0 KiB in use" in page
    assert "Pinned host memory" in page
    assert "arrays of <b>" not in page
    assert "['<script>']" not in page
    assert memory._repr_html_().startswith("<iframe ")


class Stats:
    """What PyTorch would say of pinned memory, in a process that uses a GPU."""

    def __init__(self, stats: dict[str, dict[str, int]]) -> None:
        self._C = self.cuda = self
        self.stats = stats

    def _cuda_memoryStats(self) -> None: ...

    def is_initialized(self) -> bool:
        return True

    def _cuda_isInBadFork(self) -> bool:
        return False

    def _cuda_hostMemoryStats(self) -> dict[str, dict[str, int]]:
        return self.stats


def test_pinned_memory_is_what_pytorch_says() -> None:
    stats = {"active_bytes": {"current": 4 * KIB}, "allocated_bytes": {"current": 6 * KIB}}
    assert pinned_bytes(Stats(stats)) == 6 * KIB
    assert pinned_bytes(Stats({})) == 0


def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(RuntimeError, match="uses none in this process; heap"):
        cyclescope.memory()
    with pytest.raises(ValueError, match="'cpu', which is not a GPU"):
        cyclescope.memory("cpu")
