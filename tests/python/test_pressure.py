"""Collections under memory pressure, with a stand-in for the allocator's counters."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import cyclescope
from cyclescope import _native
from cyclescope._live import pressure

try:
    import torch
except ImportError:
    pytest.skip("PyTorch's counters say how full a device is", allow_module_level=True)

MIB = 2**20


class Node:
    """Garbage that counts as 100 MiB of a device until it is collected."""

    alive = 0

    def __init__(self) -> None:
        self.me = self
        Node.alive += 1

    def __del__(self) -> None:
        Node.alive -= 1


class State:
    base = 0
    capturing = False


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[State]]:
    """A device of 1,000 MiB."""

    def stats(device: int) -> dict[str, Any]:
        used = (State.base + 100 * Node.alive) * MIB
        return {"allocated_bytes": {"all": {"current": used}}}

    State.base, State.capturing, Node.alive = 0, False, 0
    native = torch._C
    monkeypatch.setattr(native, "_cuda_memoryStats", stats, raising=False)
    monkeypatch.setattr(native, "_cuda_isInBadFork", lambda: False, raising=False)
    monkeypatch.setattr(native, "_cuda_getMemoryFraction", lambda device: 1.0, raising=False)
    monkeypatch.setattr(
        native, "_cuda_isCurrentStreamCapturing", lambda: State.capturing, raising=False
    )
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(total_memory=1000 * MIB),
    )
    monkeypatch.setattr(pressure, "INTERVAL", 0.01)
    monkeypatch.setattr(pressure, "_known_cycles", lambda: True)
    gc.collect()
    gc.disable()
    yield State
    gc.enable()


def run(seconds: float) -> None:
    """Run Python code, as a program does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def run_until(reached: Callable[[], object]) -> None:
    """Run Python code until something has come about; if it never does, the test hangs."""
    while not reached():
        pass


def test_a_full_device_is_relieved_on_the_main_thread(state: type[State]) -> None:
    threads: list[threading.Thread] = []
    gc.callbacks.append(lambda phase, info: threads.append(threading.current_thread()))
    try:
        with cyclescope.collect_on_pressure(0.9) as relief:
            for _ in range(5):
                Node()
            run(0.1)
            assert relief.collections == []
            for _ in range(4):
                Node()
            run_until(lambda: relief.collections)
            (done,) = relief.collections
    finally:
        gc.callbacks.pop()
    assert (done.device, done.allocated, done.freed) == ("cuda:0", 900 * MIB, 900 * MIB)
    assert relief.bytes_freed == 900 * MIB
    assert set(threads) == {threading.main_thread()}


def test_collections_are_limited_and_rarer_where_they_free_nothing(
    state: type[State], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(pressure, "monotonic", lambda: now)
    monkeypatch.setattr(pressure, "INTERVAL", 1000.0)  # only the test looks
    state.base = 950
    seconds = []
    with cyclescope.collect_on_pressure(0.9) as relief:
        for second in range(130):
            before = len(relief.collections)
            relief._look(torch)
            run_until(lambda: not relief._scheduled)
            if len(relief.collections) > before:
                seconds.append(second)
            now += 1
    # After 2 seconds, then 4, 8 and so on, a minute at the most.
    assert seconds == [0, 2, 6, 14, 30, 62, 122]
    assert relief.bytes_freed == 0


def test_none_while_a_graph_is_recorded_or_after_stop(state: type[State]) -> None:
    state.base, state.capturing = 950, True
    with cyclescope.collect_on_pressure(0.9) as relief:
        run(0.2)
        assert relief.collections == []
    state.capturing = False
    run(0.2)
    assert relief.collections == []


def test_cycles_that_no_watch_has_seen_are_looked_for_first(
    state: type[State], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pressure, "_known_cycles", lambda: False)
    found = SimpleNamespace(bytes_held=0)
    monkeypatch.setattr(_native, "look", lambda devices: found)
    state.base = 950
    with cyclescope.collect_on_pressure(0.9) as relief:
        run_until(lambda: relief.looks)
        run(0.2)
        assert (relief.looks, relief.collections) == (1, [])
        found.bytes_held = MIB
        relief._next_look = 0.0
        run_until(lambda: relief.collections)
        assert relief.looks == 2
        assert len(relief.collections) == 1


def test_a_collection_that_raises_is_told_and_harms_nothing(
    state: type[State], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: Any, torch: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(cyclescope.PressureRelief, "_collect", refuse)
    state.base = 950
    with cyclescope.collect_on_pressure(0.9):
        run_until(lambda: caplog.text)
    assert "a collection under memory pressure failed" in caplog.text


def test_the_main_thread_is_called() -> None:
    called: list[threading.Thread] = []

    def elsewhere() -> None:
        _native.call_in_main_thread(lambda: called.append(threading.current_thread()))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    run_until(lambda: called)
    assert called == [threading.main_thread()]


@pytest.mark.parametrize("fraction", [0, -0.1, 1.1, True])
def test_a_fraction_that_is_none_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction must be more than 0 and at most 1"):
        cyclescope.collect_on_pressure(fraction)
