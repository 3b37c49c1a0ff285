"""What context variables keep, whose values copies of a context share, and thread locals."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

import cyclescope


class Thing:
    """Can be referred to weakly."""


variable: contextvars.ContextVar[Thing | None] = contextvars.ContextVar("variable", default=None)
# So many that a context has several levels of them.
others = [contextvars.ContextVar[int](f"other{number}") for number in range(80)]
copies: list[contextvars.Context] = []
tokens: list[contextvars.Token[Thing | None]] = []


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    yield
    variable.set(None)
    copies.clear()
    tokens.clear()
    gc.collect()


def set_it() -> weakref.ref[Thing]:
    thing = Thing()
    variable.set(thing)
    return weakref.ref(thing)


def words(seen: weakref.ref[Thing]) -> list[str]:
    report = cyclescope.why_alive(seen())
    assert report.is_enough, str(report)
    return [keeper.words for keeper in report.keepers]


@pytest.mark.parametrize("count", [0, 80])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_each_copy_of_a_context_keeps_its_values(number: int, count: int) -> None:
    for other in others[:count]:
        other.set(1)
    seen = set_it()
    copies.extend(contextvars.copy_context() for _ in range(number))
    found = words(seen)
    assert len(found) == number + 1, found
    assert all(it.endswith("context variable 'variable'") for it in found), found
    of_copies = [it for it in found if "`copies`" in it]
    assert len(of_copies) == number, found
    variable.set(None)
    for copy in copies:
        assert seen() is not None
        copy.run(variable.set, None)
    assert seen() is None


def test_a_token_keeps_the_old_value() -> None:
    seen = set_it()
    tokens.append(variable.set(None))
    (found,) = words(seen)
    assert found.endswith("`tokens` (list, 1 item) → [0]"), found
    report = cyclescope.why_alive(seen())
    assert ".old_value" in [step.edge for step in report.paths[0].steps], str(report)
    tokens.clear()
    assert seen() is None


def test_the_tasks_of_a_handler_keep_what_it_has_set() -> None:
    async def wait() -> None:
        await asyncio.sleep(1000)

    async def handle() -> tuple[list[str], bool]:
        seen = set_it()
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        found = words(seen)
        variable.set(None)
        is_kept = seen() is not None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found, is_kept

    found, is_kept = asyncio.run(handle())
    assert is_kept
    assert "(Task)" in "".join(found)
    timers = [it for it in found if it.startswith("running event loop → ._scheduled")]
    assert len(timers) == 1, found


local = threading.local()


def test_each_thread_has_attributes_of_its_own() -> None:
    thing = Thing()
    seen = weakref.ref(thing)
    ready, end = threading.Event(), threading.Event()

    def work(given: list[Thing]) -> None:
        local.thing = given.pop()
        ready.set()
        end.wait()

    thread = threading.Thread(target=work, args=[[thing]])
    thread.start()
    try:
        ready.wait()
        local.thing = thing
        del thing
        found = words(seen)
        # From 3.13 on it is hidden which thread has which.
        of_thread = "of a thread" if sys.version_info >= (3, 13) else "of another thread"
        of_any = f"→ `local` (_local) → .__dict__ {of_thread} (dict, 1 item) → ['thing']"
        own = of_any if sys.version_info >= (3, 13) else "→ `local` (_local) → .thing"
        assert found[0].endswith(own), found
        assert found[1].endswith(of_any), found
        assert "internal" not in "".join(found), found
        del local.thing
        assert seen() is not None
    finally:
        end.set()
        thread.join()
    assert seen() is None
