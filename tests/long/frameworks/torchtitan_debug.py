"""torchtitan's own garbage collection in its debug mode, with PyTorch's detector replaced by ours.

``make test-frameworks`` installs it, without what it trains with, and runs this.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torchtitan.tools.utils import GarbageCollection

import cyclescope
from cyclescope import _warner


class Metrics:
    """Leaks: it knows the function that knows it."""

    def __init__(self, activations: torch.Tensor) -> None:
        self.activations = activations
        self.summary = lambda: self.activations.mean()


@pytest.fixture(autouse=True)
def rank_0(tmp_path: Path) -> Iterator[None]:
    gc.collect()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    gc.enable()
    while (watch := _warner.running_warner()) is not None:
        watch.stop()


def test_debug_mode_tells_of_leaks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with cyclescope.patch_torch(devices="any", report_dir=tmp_path / "pages"):
        collection = GarbageCollection(gc_freq=100, debug=True)
    # torchtitan keeps nothing of the watch that it has started.
    watch = _warner.running_warner()
    assert watch is not None
    for step in range(1, 6):
        Metrics(torch.zeros(1000))
        assert collection.run(step)
    assert watch.flush(60)
    (warning,) = [record for record in caplog.records if record.name == "cyclescope"]
    assert "Metrics.summary → <lambda>" in warning.getMessage()
    (leak,) = watch.leaks
    assert leak.count == 5
    assert len(list((tmp_path / "pages").glob("*.html"))) == 1


def test_what_its_collections_of_the_young_never_free_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collection = GarbageCollection(gc_freq=2)
    collector = cyclescope.StepCollector(every=6, devices="any", report_dir=tmp_path)
    kept: list[Metrics] = []
    for step in range(1, 7):
        kept.append(Metrics(torch.zeros(1000)))
        collection.run(step)
        if step == 4:
            # These have survived torchtitan's collections, and are garbage from now on.
            kept.clear()
        found = collector.step()
    assert found is not None
    assert found.bytes_aged > 0
    assert any("had aged into the oldest generation" in message for message in caplog.messages)
    collector.stop()
