"""The counts of a watch as metrics of OpenTelemetry, by its own API (``opentelemetry-api``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry import metrics

from cyclescope import _native
from cyclescope._watch import Watch

MAX_LEAKS = 100
"""Maximum number of leaks with metrics of their own, the largest first."""


def export_metrics(watch: Watch, meter_provider: Any | None = None) -> None:
    """Have OpenTelemetry read a watch whenever it exports metrics.

    ``cyclescope.held`` is the memory that reference cycles have held until a garbage collection
    freed it, in bytes. ``cyclescope.leak.held`` and ``cyclescope.leak.occurrences`` are, for
    each leak, the same bytes and the number of occurrences, with the attributes ``signature`` and
    ``cycle``. Memory that two leaks held counts for both, but only once in the first metric.

    Args:
        watch: What :func:`cyclescope.warn_tensor_cycles` returns.
        meter_provider: By default the one that the program has set for the whole process.
    """
    meter = metrics.get_meter("cyclescope", meter_provider=meter_provider)

    def total(_options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        return [metrics.Observation(_native.total_bytes(watch.leaks))]

    def held(_options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        return [metrics.Observation(leak.bytes, _attributes(leak)) for leak in _largest(watch)]

    def occurrences(_options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        return [metrics.Observation(leak.count, _attributes(leak)) for leak in _largest(watch)]

    meter.create_observable_counter(
        "cyclescope.held",
        [total],
        unit="By",
        description="Memory that reference cycles held until a garbage collection freed it.",
    )
    meter.create_observable_counter(
        "cyclescope.leak.held",
        [held],
        unit="By",
        description="Memory that a leak held until a garbage collection freed it.",
    )
    meter.create_observable_counter(
        "cyclescope.leak.occurrences",
        [occurrences],
        unit="{occurrence}",
        description="How often a leak was found.",
    )


def _largest(watch: Watch) -> list[_native.LeakTally]:
    return watch.leaks[:MAX_LEAKS]


def _attributes(leak: _native.LeakTally) -> dict[str, str]:
    return {"signature": leak.signature, "cycle": leak.summary}
