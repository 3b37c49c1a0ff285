"""What grows in a part of the standard library, with advice that is followed and then frees."""

from __future__ import annotations

import asyncio
import collections
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import cyclescope
from support.monitors import monitor_of_all

try:
    import torch
except ImportError:
    pytest.skip("what grows is looked for in PyTorch's tensors", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("no_garbage")

STEPS = 40
seen: list[weakref.ref[torch.Tensor]] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    yield
    seen.clear()


def watched(min_bytes: int = 1) -> cyclescope.LeakMonitor:
    return monitor_of_all(min_bytes=min_bytes)


def block() -> torch.Tensor:
    tensor = torch.ones(256)
    seen.append(weakref.ref(tensor))
    return tensor


def alive() -> int:
    return sum(it() is not None for it in seen)


def told(step: Callable[[int], object]) -> cyclescope.Growth:
    with watched() as monitor:
        for number in range(STEPS):
            step(number)
            monitor.step()
    (found,) = (growth for growth in monitor.found if growth.tensors)
    assert alive() == STEPS
    return found


@pytest.mark.parametrize("make", [queue.Queue, queue.LifoQueue, queue.SimpleQueue])
def test_a_queue_is_to_have_a_limit(make: Callable[[], queue.Queue[torch.Tensor]]) -> None:
    waiting = make()
    found = told(lambda _: waiting.put(block()))
    assert "a queue, is given more than is taken out" in found.summary
    assert "maxsize" in found.advice
    assert "an internal reference" not in found.owner, found.owner
    while not waiting.empty():
        waiting.get()
    assert alive() == 0


@pytest.mark.parametrize("make", [queue.Queue, queue.LifoQueue, queue.PriorityQueue])
def test_a_queue_with_a_limit_fills(make: Callable[[int], queue.Queue[tuple[int, Any]]]) -> None:
    waiting = make(STEPS)
    with watched() as monitor:
        for number in range(STEPS):
            waiting.put_nowait((number, block()))
            monitor.step()
    assert waiting.full()
    assert [growth for growth in monitor.found if growth.tensors] == []


def test_the_queue_of_an_executor_is_named() -> None:
    end = threading.Event()
    pool = ThreadPoolExecutor(1)
    pool.submit(end.wait)
    futures = []
    try:
        found = told(lambda _: futures.append(pool.submit(torch.numel, block())))
        assert found.owner.endswith("→ ._work_queue"), found.owner
        assert "wait for results" in found.advice
    finally:
        end.set()
        pool.shutdown()
    assert alive() == 0


def test_finalizers_are_to_be_detached() -> None:
    class Session:
        pass

    session = Session()
    finalizers = []
    found = told(lambda _: finalizers.append(weakref.finalize(session, print, block())))
    assert "accumulates finalizers" in found.summary
    assert "detach()" in found.advice
    for finalizer in finalizers:
        finalizer.detach()
    assert alive() == 0


@pytest.mark.long
@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("has_list", [False, True])
def test_threads_are_to_end_and_not_to_be_cleared(is_local: bool, has_list: bool) -> None:
    end = threading.Event()
    threads: list[threading.Thread] = []

    def work(given: list[torch.Tensor]) -> None:
        own = given[0] if is_local else None
        end.wait()
        del own

    def start(_: int) -> None:
        thread = threading.Thread(target=work, args=[[block()]], daemon=True)
        thread.start()
        if has_list:
            threads.append(thread)

    try:
        found = told(start)
        assert "clear it" not in found.advice, found.owner
        assert "End each thread" in found.advice
    finally:
        end.set()
        for thread in threading.enumerate():
            if thread.daemon and thread.name.endswith("(work)"):
                thread.join()
    threads.clear()
    assert alive() == 0


def test_callbacks_of_an_event_loop_are_to_be_cancelled() -> None:
    handles: list[asyncio.TimerHandle] = []

    async def serve() -> cyclescope.Growth:
        loop = asyncio.get_running_loop()
        found = told(lambda _: handles.append(loop.call_later(1000, torch.numel, block())))
        for handle in handles:
            handle.cancel()
        return found

    found = asyncio.run(serve())
    assert "wait in the event loop" in found.summary
    assert "cancel()" in found.advice
    assert alive() == 0


def test_what_keeps_tasks_besides_their_list_is_named() -> None:
    async def wait(_: torch.Tensor) -> None:
        await asyncio.sleep(1000)

    async def serve() -> cyclescope.Growth:
        tasks: list[asyncio.Task[None]] = []
        with watched() as monitor:
            for _ in range(STEPS):
                tasks.append(asyncio.ensure_future(wait(block())))
                await asyncio.sleep(0)
                monitor.step()
        (found,) = (growth for growth in monitor.found if growth.tensors)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return found

    found = asyncio.run(serve())
    assert found.owner.startswith("local `tasks`"), found.owner
    assert "running event loop → ._scheduled holds at least some of them too" in found.summary
    assert "`cancel()` each" in found.advice


def test_views_of_larger_arrays_are_to_be_copied() -> None:
    def keep(make: Callable[[], list[np.ndarray]]) -> cyclescope.Growth:
        kept: list[np.ndarray] = []
        with watched() as monitor:
            for _ in range(STEPS):
                kept += make()
                monitor.step()
        (found,) = monitor.found
        return found

    found = keep(lambda: [np.ones((64, 64))[0]])
    assert ".copy()" in found.advice
    assert "views of larger arrays (the youngest shows 512 bytes of 32.0 KiB)" in found.summary
    assert ".copy()" not in keep(lambda: [np.ones((64, 64))]).advice
    assert ".copy()" not in keep(lambda: list(np.ones((4, 64)))).advice
    assert ".copy()" not in keep(lambda: [np.ones((64, 64)).T]).advice


class Event:
    def __init__(self, number: int) -> None:
        self.number = number


class Row:
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize(
    ("make", "is_weak"),
    [(Event, True), (Row, False), (lambda it: [it], False), (lambda it: f"key {it}", False)],
)
def test_only_what_can_be_is_to_be_held_weakly(
    make: Callable[[int], object], is_weak: bool
) -> None:
    kept: list[object] = []
    with watched() as monitor:
        for step in range(STEPS):
            kept += [make(100 * step + number) for number in range(100)]
            monitor.step()
    (found,) = (growth for growth in monitor.found if "`kept`" in growth.owner)
    assert found.objects > 0
    assert ("weakly" in found.advice) == is_weak, found.advice


def test_what_takes_the_place_of_something_larger_is_not_as_old() -> None:
    window: collections.deque[torch.Tensor] = collections.deque(maxlen=20)
    losses: list[torch.Tensor] = []
    outputs: dict[int, torch.Tensor] = {}
    with cyclescope.LeakMonitor(every=10, devices="any", max_share=float("inf")) as monitor:
        for step in range(200):
            losses.append(torch.zeros(2**12))
            outputs[step] = torch.zeros(2**13)
            window.append(torch.zeros(2**14))
            monitor.step()
    (of_losses,) = (growth for growth in monitor.found if "`losses`" in growth.owner)
    assert of_losses.bytes_per_step == pytest.approx(2**14, rel=0.05)
