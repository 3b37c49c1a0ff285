"""An object of a class that the program derives from a library's, which needs its containers."""

from __future__ import annotations

import collections
import logging
import queue
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import cyclescope
from support.owners import check_is_of, payload

pytestmark = pytest.mark.usefixtures("collector_paused")


class Jobs(queue.Queue[Any]):
    """Items wait in a deque that `put` and `get` use."""


class Ranked(queue.PriorityQueue[Any]):
    """Items wait in a list."""


class History(collections.UserList[Any]):
    """All methods use the list `data`."""


class Table(collections.UserDict[str, Any]):
    """All methods use the dict `data`."""


class Screen(logging.Handler):
    """Each record is passed to all in `filters`."""


def in_jobs() -> tuple[Any, Callable[[], object]]:
    jobs = Jobs()
    jobs.put(jobs)
    return jobs, jobs.get


def in_jobs_with_more() -> tuple[Any, Callable[[], object]]:
    jobs = Jobs()
    jobs.put((jobs, 1))
    jobs.put((jobs, 2))
    return jobs, jobs.queue.clear


def in_ranked() -> tuple[Any, Callable[[], object]]:
    ranked = Ranked()
    ranked.put((1, ranked))
    return ranked, ranked.get


def in_history() -> tuple[Any, Callable[[], object]]:
    history = History()
    history.append(history)
    return history, history.pop


def in_table() -> tuple[Any, Callable[[], object]]:
    table = Table()
    table["self"] = table
    return table, table.popitem


def in_filters() -> tuple[Any, Callable[[], object]]:
    screen = Screen()
    screen.addFilter(lambda _: bool(screen))
    screen.addFilter(lambda _: not screen)
    return screen, screen.filters.clear


SAID = {
    in_jobs: "Remove the item at `[0]` from the deque `Jobs.queue` when",
    in_jobs_with_more: "Call `Jobs.queue.clear()` when it is no longer needed.",
    in_ranked: "Remove the item at `[0]` from the list `Ranked.queue` when",
    in_history: "Remove the item at `[0]` from the list `History.data` when",
    in_table: "Remove the item at `['self']` from the dict `Table.data` when",
    in_filters: "Call `Screen.filters.clear()` when it is no longer needed.",
}


@pytest.mark.parametrize("make", SAID)
def test_what_the_program_put_there_is_to_go(
    make: Callable[[], tuple[Any, Callable[[], object]]],
) -> None:
    owner, follow = make()
    owner.payload = payload()
    del owner, follow
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    (leak,) = report.leaks
    assert leak.library is None
    assert SAID[make] in leak.advice

    owner, follow = make()
    freed = weakref.ref(owner)
    follow()
    del owner, follow
    assert freed() is None


WITH_CACHE = """
import functools


class View:
    def __init__(self, graph):
        self.shown = graph


class Graph:
    @functools.cached_property
    def edges(self):
        return View(self)
"""


def test_what_a_librarys_cached_property_keeps_is_the_librarys(
    install: Callable[..., Any],
) -> None:
    graphs = install("graphs", WITH_CACHE)

    class Net(graphs.Graph):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.weights = payload()

    def make() -> None:
        assert Net().edges is not None

    check_is_of("graphs", make)
