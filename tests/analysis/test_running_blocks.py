"""What a running function has on its stack: iterators, contexts, operands; and exceptions."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="operands of running functions are not told on 3.10"
)

MIB = 1 << 20
STACK = "a running `for`, `with` or expression"
Seen = list["weakref.ref[Any]"]


class Thing:
    """Can be referred to weakly."""


def thing(seen: Seen) -> Thing:
    made = Thing()
    seen.append(weakref.ref(made))
    return made


def batches(seen: Seen) -> Iterator[int]:
    batch = thing(seen)
    yield 1
    yield 2
    del batch


class Batches:
    """An iterator with a buffer, which can be deleted."""

    def __init__(self, seen: Seen) -> None:
        self.buffer = [thing(seen)]

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> int:
        return 1


def ask(seen: Seen) -> cyclescope.Retention:
    (target,) = seen
    return cyclescope.why_alive(target())


def loop(seen: Seen) -> cyclescope.Retention:
    for _ in batches(seen):
        return ask(seen)
    raise AssertionError


def loop_in_loop(seen: Seen) -> cyclescope.Retention:
    with contextlib.suppress(ValueError):
        for _ in [1, 2]:
            for _ in batches(seen):
                try:
                    found = ask(seen)
                finally:
                    gc.collect()
                break
            break
    return found


def loop_in_handler(seen: Seen) -> cyclescope.Retention:
    try:
        raise ValueError
    except ValueError:
        return loop(seen)


def handler_in_loop(seen: Seen) -> cyclescope.Retention:
    for _ in batches(seen):
        try:
            raise ValueError
        except ValueError:
            return ask(seen)
    raise AssertionError


def context(seen: Seen) -> cyclescope.Retention:
    @contextlib.contextmanager
    def open_file() -> Iterator[None]:
        handle = thing(seen)
        yield
        del handle

    with open_file():
        return ask(seen)


def operand(seen: Seen) -> cyclescope.Retention:
    return [thing(seen), ask(seen)][1]  # type: ignore[return-value]


def generator_in_generator(seen: Seen) -> cyclescope.Retention:
    def around() -> Iterator[cyclescope.Retention]:
        for _ in batches(seen):
            yield ask(seen)

    return next(around())


def coroutine(seen: Seen) -> cyclescope.Retention:
    async def items() -> AsyncIterator[int]:
        item = thing(seen)
        yield 1
        del item

    async def main() -> cyclescope.Retention:
        async for _ in items():
            return ask(seen)
        raise AssertionError

    return asyncio.run(main())


def other_thread(seen: Seen) -> cyclescope.Retention:
    ready, done = threading.Event(), threading.Event()

    def work() -> None:
        for _ in batches(seen):
            ready.set()
            done.wait()
            break

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    try:
        return ask(seen)
    finally:
        done.set()
        thread.join()


PROGRAMS: dict[str, tuple[Callable[[Seen], cyclescope.Retention], str]] = {
    program.__name__: (program, function)
    for program, function in [
        (loop, "loop"),
        (loop_in_loop, "loop_in_loop"),
        (loop_in_handler, "loop"),
        (handler_in_loop, "handler_in_loop"),
        (context, "context"),
        (operand, "operand"),
        (generator_in_generator, "around"),
        (coroutine, "main"),
        (other_thread, "work"),
    ]
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_function_that_runs_is_named_and_nothing_else(name: str) -> None:
    program, function = PROGRAMS[name]
    seen: Seen = []
    report = program(seen)
    gc.collect()
    assert seen[0]() is None
    (keeper,) = report.keepers
    assert keeper.goes_by_itself == (program is not context)
    assert keeper.words.startswith(f"frame of `{function}`"), keeper.words
    assert STACK in keeper.words
    assert report.is_enough, str(report)
    assert "C or C++" not in str(report)


def test_what_an_iterator_keeps_can_be_removed() -> None:
    seen: Seen = []
    buffers: list[weakref.ref[Any]] = []
    for own in [Batches(seen)]:
        buffers.append(weakref.ref(own))
        del own
        report = ask(seen)
        (keeper,) = report.keepers
        assert keeper.words.endswith(".buffer (list, 1 item) → [0]"), keeper.words
        assert STACK in keeper.words
        assert report.is_enough
        buffers[0]().buffer.clear()  # type: ignore[union-attr]
        assert seen[0]() is None


def test_an_iterator_that_was_left_is_not_named() -> None:
    """Its place on the stack still has its address."""
    seen: Seen = []
    kept = {"iterator": batches(seen)}

    def leave() -> Iterator[int]:
        for _ in kept["iterator"]:
            break
        return kept["iterator"]

    def leave_by_return() -> int:
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: told.append(ask(seen)))
            for number in kept["iterator"]:
                return number
        return 0

    told: list[cyclescope.Retention] = []
    leave()
    told.append(ask(seen))
    leave_by_return()
    for report in told:
        (keeper,) = report.keepers
        assert "local `kept`" in keeper.words, str(report)
    del kept["iterator"]
    assert seen[0]() is None


def fail(seen: Seen) -> None:
    batch = thing(seen)
    raise ValueError(id(batch))


def test_an_exception_without_a_name_is_named() -> None:
    seen: Seen = []
    try:
        fail(seen)
    except ValueError:
        report = ask(seen)
    assert seen[0]() is None
    (keeper,) = report.keepers
    assert keeper.words.startswith("ValueError that is being handled"), str(report)
    assert keeper.release == "leave the block that handles it"
    assert report.is_enough
    (path,) = report.paths
    assert "kept by the traceback in ValueError that is being handled" in path.words
    assert "C or C++" not in str(report)


def test_an_exception_with_another_holder_is_not_freed_by_leaving_the_block() -> None:
    seen: Seen = []
    errors = []
    try:
        fail(seen)
    except ValueError as error:
        errors.append(error)
        del error
        report = ask(seen)
    assert seen[0]() is not None
    assert [keeper.release for keeper in report.keepers] == [""]
    errors.clear()
    assert seen[0]() is None


def test_the_function_of_a_frame_has_a_name_that_people_know() -> None:
    def make() -> tuple[Callable[[], cyclescope.Retention], weakref.ref[Thing]]:
        held = Thing()
        seen = weakref.ref(held)

        def step(batch: Any = held) -> cyclescope.Retention:
            del batch
            return cyclescope.why_alive(seen())

        return step, seen

    def run() -> tuple[cyclescope.Retention, weakref.ref[Thing]]:
        step, seen = make()
        hidden = [step]
        del step
        return hidden.pop()(), seen

    report, seen = run()
    assert seen() is None
    assert "f_func" not in str(report)
    assert any("its function" in keeper.words for keeper in report.keepers), str(report)


Looked = list[tuple[cyclescope.Heap, cyclescope.Retention]]


def look(losses: list[Any], looked: Looked) -> int:
    looked.append((cyclescope.heap(), cyclescope.why_alive(losses[0])))
    return 1


def by_local(losses: list[Any], looked: Looked) -> None:
    mine = losses
    mine.append(look(losses, looked))


def by_attribute(losses: list[Any], looked: Looked) -> None:
    trainer = Thing()
    trainer.losses = losses  # type: ignore[attr-defined]
    del losses
    trainer.losses.append(look(trainer.losses, looked))  # type: ignore[attr-defined]


def by_loop(losses: list[Any], looked: Looked) -> None:
    for _ in losses:
        look(losses, looked)


@pytest.mark.parametrize("keep", [by_local, by_attribute, by_loop])
def test_a_name_is_told_rather_than_an_operand(keep: Callable[[list[Any], Looked], None]) -> None:
    looked: Looked = []
    keep([numpy.ones(MIB, numpy.uint8)], looked)
    ((heap, report),) = looked
    owners = [buffer.owner for buffer in heap.buffers if buffer.bytes == MIB]
    assert owners, str(heap)
    assert all(STACK not in owner for owner in owners), owners
    assert STACK not in report.keepers[0].words, str(report)
    assert STACK not in report.paths[0].words, str(report)


def test_what_a_loop_keeps_is_called_no_variable() -> None:
    words = str(loop([]))
    assert "1 reference of a running function only" in words
    assert "local variable" not in words
