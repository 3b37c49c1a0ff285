"""The counts of a watch by the clients of Prometheus and OpenTelemetry."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

import cyclescope
from cyclescope.integrations import opentelemetry, prometheus
from support.nodes import Node

SIZE = 2**21


@pytest.fixture
def watch(tmp_path: Path, collector_paused: None) -> Iterator[cyclescope.Watch]:
    with cyclescope.warn_tensor_cycles(devices="any", report_dir=tmp_path) as watch:
        yield watch


def leak(watch: cyclescope.Watch, times: int) -> cyclescope.LeakTally:
    for _ in range(times):
        Node(SIZE // 2**20)
        gc.collect()
    watch.flush()
    (found,) = watch.leaks
    return found


def test_prometheus(watch: cyclescope.Watch) -> None:
    registry = CollectorRegistry()
    registry.register(prometheus.TensorCyclesCollector(watch))
    assert registry.get_sample_value("cyclescope_held_bytes_total") == 0
    for times in (1, 3):
        found = leak(watch, times)
        labels = {"signature": found.signature, "cycle": found.summary}
        value = registry.get_sample_value
        assert value("cyclescope_held_bytes_total") == SIZE * found.count
        assert value("cyclescope_leak_held_bytes_total", labels) == SIZE * found.count
        assert value("cyclescope_leak_occurrences_total", labels) == found.count
    assert found.count == 4
    assert b"# TYPE cyclescope_leak_held_bytes_total counter" in generate_latest(registry)


def test_opentelemetry(watch: cyclescope.Watch) -> None:
    reader = InMemoryMetricReader()
    opentelemetry.export_metrics(watch, MeterProvider([reader]))
    found = leak(watch, 3)
    data = reader.get_metrics_data()
    assert data is not None
    values = {
        metric["name"]: [(it["value"], it["attributes"]) for it in metric["data"]["data_points"]]
        for resource in json.loads(data.to_json())["resource_metrics"]
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
    }
    attributes = {"signature": found.signature, "cycle": found.summary}
    assert values == {
        "cyclescope.held": [(SIZE * 3, {})],
        "cyclescope.leak.held": [(SIZE * 3, attributes)],
        "cyclescope.leak.occurrences": [(3, attributes)],
    }
