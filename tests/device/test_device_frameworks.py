"""Frameworks that come late, by halves or not at all, and what a watch says of the machine."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Callable
from typing import Any

import pytest

import cyclescope
from cyclescope import _native, _watch
from cyclescope._settings import settings
from support.processes import run

pytestmark = pytest.mark.usefixtures("collector_paused")

# A program that watches, and what makes its cycles.
WATCHED = """
        import gc, json, sys
        import cyclescope
        gc.disable()
        seen = []
        watch = cyclescope.observe_tensor_cycles(seen.append, devices="any")

        class Holder:
            def __init__(self, held):
                self.held, self.me = held, self
"""

# --- Frameworks come and go ---


def test_pytorch_imported_after_the_watch_began() -> None:
    said = run(
        WATCHED
        + """
        Holder([])
        gc.collect()
        before = [name for name in ("torch", "numpy", "cupy") if name in sys.modules]
        import torch
        Holder(torch.zeros(1000))
        gc.collect()
        watch.stop()
        print(json.dumps([before, [leak.bytes_held for report in seen for leak in report.leaks]]))
    """
    )
    assert said == [[], [4000]]


def test_a_program_without_frameworks_gets_none() -> None:
    said = run("""
        import gc, json, logging, sys
        import cyclescope
        logging.getLogger("cyclescope").addHandler(logging.NullHandler())

        class Holder:
            def __init__(self):
                self.me = self

        watch = cyclescope.warn_tensor_cycles()
        other = cyclescope.observe_tensor_cycles(print, devices="any")
        for _ in range(10):
            Holder()
            gc.collect()
        Holder()
        report = cyclescope.find_tensor_cycles(devices="any")
        watch.stop()
        other.stop()
        frameworks = ("torch", "numpy", "cupy", "jax", "numba")
        print(json.dumps([len(report.leaks), [f for f in frameworks if f in sys.modules]]))
    """)
    assert said == [0, []]


def test_an_import_of_pytorch_that_is_half_done() -> None:
    """As where another thread, or the import itself, collects before the module is complete."""
    said = run(
        WATCHED
        + """
        class Collect:
            stages = set()

            def find_spec(self, name, path=None, target=None):
                if name.startswith("torch."):
                    Holder([])
                    gc.collect(0)
                    self.stages.add(name)
                return None

        sys.meta_path.insert(0, Collect())
        import torch
        sys.meta_path.pop(0)
        Holder(torch.zeros(1000))
        gc.collect()
        watch.stop()
        leaks = [leak.bytes_held for report in seen for leak in report.leaks]
        print(json.dumps([len(Collect.stages) > 100, 4000 in leaks]))
    """
    )
    assert said == [True, True]


def test_cuda_is_not_initialised() -> None:
    said = run("""
        import gc, json, logging, torch
        import cyclescope
        logging.getLogger("cyclescope").addHandler(logging.NullHandler())
        gc.disable()

        class Holder:
            def __init__(self, held):
                self.held, self.me = held, self

        def driver_is_loaded():
            with open("/proc/self/maps") as maps:
                return "libcuda.so" in maps.read()

        before = driver_is_loaded()
        watch = cyclescope.warn_tensor_cycles()
        Holder(torch.zeros(1000))
        gc.collect()
        Holder(torch.zeros(1000))
        found = len(cyclescope.find_tensor_cycles(devices="any").leaks)
        cyclescope.find_tensor_cycles()
        watch.stop()
        print(json.dumps([found, torch.cuda.is_initialized(), driver_is_loaded() == before]))
    """)
    assert said == [1, False, True]


# --- What a watch says of the machine ---


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    monkeypatch.setattr(_watch, "_said", set())
    caplog.set_level(logging.WARNING, "cyclescope")
    return lambda: [record.getMessage() for record in caplog.records]


def test_without_a_driver_it_is_said_once_what_is_watched(
    said: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "cuda_driver_present", lambda: False)
    for _ in range(2):
        cyclescope.warn_tensor_cycles(devices="cuda").stop()
        cyclescope.observe_tensor_cycles(print, devices=["cuda:0"]).stop()
    (line,) = said()
    assert "no CUDA driver" in line
    assert "Pass devices='any'" in line


DEFAULTS: dict[str, Callable[[], object]] = {
    "warn": lambda: cyclescope.warn_tensor_cycles().stop(),
    "observe": lambda: cyclescope.observe_tensor_cycles(print).stop(),
    "find": cyclescope.find_tensor_cycles,
    "assert": cyclescope.assert_no_tensor_cycles,
    "forbid": cyclescope.forbid_tensor_cycles,
}


@pytest.mark.parametrize("first", DEFAULTS)
def test_the_default_is_said_once_where_it_is_host_memory(
    said: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    monkeypatch.setattr(_native, "cuda_driver_present", lambda: False)
    DEFAULTS[first]()
    for other in DEFAULTS.values():
        other()
    (line,) = said()
    assert "no CUDA driver" in line
    assert "host memory" in line


@pytest.mark.parametrize("driver", [False, True])
def test_every_function_has_the_same_default(
    monkeypatch: pytest.MonkeyPatch, driver: bool, said: Callable[[], list[str]]
) -> None:
    numpy: Any = pytest.importorskip("numpy", reason="NumPy is not installed")
    monkeypatch.setattr(_native, "cuda_driver_present", lambda: driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def leak() -> None:
        held: list[Any] = [numpy.zeros(1000)]
        held.append(held)

    leak()
    assert len(cyclescope.find_tensor_cycles().leaks) == (not driver)
    leak()
    fails = contextlib.nullcontext() if driver else pytest.raises(cyclescope.TensorCycleError)
    with fails:
        cyclescope.assert_no_tensor_cycles()
    assert settings().devices_or(None) == (["gpu"] if driver else ["any"])
    fails = contextlib.nullcontext() if driver else pytest.raises(cyclescope.TensorCycleError)
    with fails, cyclescope.forbid_tensor_cycles():
        leak()
    with cyclescope.warn_tensor_cycles() as watch:
        leak()
        gc.collect()
        watch.flush()
        assert len(watch.leaks) == (not driver)
    collector = cyclescope.StepCollector(every=1)
    leak()
    step = collector.step()
    collector.stop()
    assert step is not None
    assert len(step.report.leaks) == (not driver)


@pytest.mark.parametrize("devices", ["any", "cpu", ["cuda", "cpu"]])
def test_who_watches_host_memory_is_told_nothing(
    said: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, devices: Any
) -> None:
    monkeypatch.setattr(_native, "cuda_driver_present", lambda: False)
    cyclescope.warn_tensor_cycles(devices=devices).stop()
    assert said() == []


def test_with_a_driver_nothing_is_said(
    said: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "cuda_driver_present", lambda: True)
    cyclescope.warn_tensor_cycles().stop()
    assert said() == []


def test_the_driver_is_found_without_loading_it() -> None:
    files = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu")
    assert _native.cuda_driver_present() == any(os.path.exists(file) for file in files)
