"""A store that states its limit is not told, and what it keeps is not said to be another's."""

from __future__ import annotations

from typing import Any

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
