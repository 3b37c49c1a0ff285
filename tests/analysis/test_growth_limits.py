"""What states a limit that it keeps to is not told; what is told has the right owner and amount."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import cyclescope
from support.monitors import monitor_of_all


class Store:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.spans: list[Any] = []


class Registry:
    def __init__(self) -> None:
        self.plugins: dict[str, Any] = {}


def headline(limit: int, monitor: cyclescope.LeakMonitor) -> str:
    store, registry = Store(limit), Registry()
    with monitor:
        for step in range(120):
            registry.plugins[f"p{step}"] = [object(), []]
            store.spans.extend([step, [step], {}] for _ in range(30))
            monitor.step()
    assert len(store.spans) == 30 * len(registry.plugins)
    return monitor.headline


@pytest.mark.usefixtures("collector_paused")
def test_what_another_keeps_is_not_said_to_be_an_owners() -> None:
    monitor = cyclescope.LeakMonitor(every=1, devices="any", max_share=float("inf"))
    said = headline(20_000, monitor)
    assert "more objects of `list`" in said
    assert "`list` in `Registry.plugins`" not in said, said


@pytest.mark.usefixtures("collector_paused")
def test_a_limit_that_no_memory_has_is_none() -> None:
    assert "objects in `Store.spans`" in headline(10**9, monitor_of_all())


class Event:
    def __init__(self, number: int) -> None:
        self.of = {"it": [number]}


class Pool:
    """Its limits are not those of the list."""

    def __init__(self) -> None:
        self.max_size, self.capacity = 8, 16
        self.events: list[Event] = []


@pytest.mark.usefixtures("collector_paused")
def test_a_limit_that_a_container_is_long_beyond_is_not_its_own() -> None:
    pool = Pool()
    with monitor_of_all() as monitor:
        for step in range(60):
            pool.events.extend(Event(step) for _ in range(30))
            monitor.step()
    assert "objects in `Pool.events`" in monitor.headline, monitor.headline


def test_the_rate_counts_all_arrays_of_an_item() -> None:
    rows: list[Any] = []
    with monitor_of_all() as monitor:
        for _ in range(40):
            rows.append(tuple(numpy.ones(1024, "f4") for _ in range(5)))
            monitor.step()
    (found,) = monitor.found
    assert found.bytes_per_step == pytest.approx(5 * 4096, rel=0.05)
    assert "100 % explained by `rows`" in monitor.headline


@pytest.mark.parametrize("dtype", [[("a", "f4"), ("b", "f8")], "M8[s]", "U10", "S10"])
def test_whole_arrays_of_any_kind_are_no_views(dtype: Any) -> None:
    rows: list[Any] = []
    with monitor_of_all() as monitor:
        for _ in range(40):
            rows.append(numpy.zeros(1500, dtype))
            monitor.step()
    (found,) = monitor.found
    assert "that are views" not in found.summary
