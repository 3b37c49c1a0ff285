"""Tuples that another thread, or a caller, is filling: they are met, and stay as they are."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

import cyclescope
from support.processes import run

torch = pytest.importorskip("torch")

ENTRIES = {
    "find": "cyclescope.find_tensor_cycles(devices='any')",
    "heap": "cyclescope.heap()",
    "why": "cyclescope.why_alive([1])",
    "warn": "cyclescope.warn_tensor_cycles(devices='any').stop()",
    "growth": "cyclescope.watch_growth(devices='any', every=1).step()",
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_first_use_amid_a_tuple(entry: str) -> None:
    source = f"""
    import cyclescope
    print(len(tuple(str({ENTRIES[entry]}) for number in range(3))))
    """
    assert run(source) == 3


def test_no_other_thread_runs_while_its_tuples_are_held() -> None:
    parts_of_this_test = [torch.eye(50).to_sparse() for _ in range(200)]
    errors: list[SystemError] = []
    seen_off: list[bool] = []
    ends = threading.Event()

    def make() -> None:
        while not ends.is_set():
            try:
                tuple(number for number in range(30))
            except SystemError as error:
                errors.append(error)
            seen_off.append(not gc.isenabled())

    threads = [threading.Thread(target=make) for _ in range(2)]
    cyclescope.heap()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        heaps = [cyclescope.heap() for _ in range(8)]
    finally:
        ends.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
    assert errors == []
    assert not any(seen_off)
    for heap in heaps:
        ours = [buffer.bytes for buffer in heap.buffers if "parts_of_this_test" in buffer.owner]
        assert sum(ours) == 200 * (50 * 4 + 50 * 2 * 8)
    del parts_of_this_test


def test_parts_that_the_program_has_too() -> None:
    kept = torch.eye(1000).to_sparse()
    values = kept._values()
    told = cyclescope.why_alive(values).to_text()
    assert "kept alive by 1 local variable" in told
    assert "local `values` in" in told
    assert "._values() holds" in told
