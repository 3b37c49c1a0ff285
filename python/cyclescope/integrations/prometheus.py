"""The counts of a watch as metrics of Prometheus, by its own client (``prometheus_client``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client.metrics_core import CounterMetricFamily

from cyclescope import _native
from cyclescope._watch import Watch

if TYPE_CHECKING:
    Collector = Any
else:
    from prometheus_client.registry import Collector

MAX_LEAKS = 100
"""Maximum number of leaks with metrics of their own, the largest first."""


class TensorCyclesCollector(Collector):  # type: ignore[misc]
    """Reads a watch whenever Prometheus asks::

        from prometheus_client import REGISTRY

        REGISTRY.register(TensorCyclesCollector(cyclescope.warn_tensor_cycles()))

    ``cyclescope_held_bytes_total`` is the memory that reference cycles have held until a garbage
    collection freed it. ``cyclescope_leak_held_bytes_total`` and
    ``cyclescope_leak_occurrences_total`` are, for each leak, the same bytes and the number of
    occurrences, with the labels ``signature`` and ``cycle``. Memory that two leaks held counts for
    both, but only once in the first metric. The client counts collections by itself
    (``python_gc_collections_total``).

    Args:
        watch: What :func:`cyclescope.warn_tensor_cycles` returns.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def describe(self) -> Iterable[Any]:
        """The metrics without values, so that none is made when this is registered."""
        return self._families()

    def collect(self) -> Iterable[Any]:
        """The metrics as they are now."""
        leaks = self._watch.leaks
        total, held, occurrences = families = self._families()
        total.add_metric([], _native.total_bytes(leaks))
        for leak in leaks[:MAX_LEAKS]:
            labels = [leak.signature, leak.summary]
            held.add_metric(labels, leak.bytes)
            occurrences.add_metric(labels, leak.count)
        return families

    def _families(self) -> list[Any]:
        by = ["signature", "cycle"]
        return [
            CounterMetricFamily(
                "cyclescope_held_bytes",
                "Memory that reference cycles held until a garbage collection freed it.",
            ),
            CounterMetricFamily(
                "cyclescope_leak_held_bytes",
                "Memory that a leak held until a garbage collection freed it.",
                labels=by,
            ),
            CounterMetricFamily(
                "cyclescope_leak_occurrences", "How often a leak was found.", labels=by
            ),
        ]
