"""A backend outside of PyTorch (PrivateUse1), compiled here: its memory is the host's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import support
from support.processes import run

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

COMPILER = shutil.which(os.environ.get("CXX", "c++"))

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler"),
    # It compiles against the headers of PyTorch.
    pytest.mark.long,
]

START = """
        import ctypes, gc, json, sys, types
        import torch
        gc.disable()
        library = ctypes.CDLL({library!r})
        library.bytes_in_use.restype = ctypes.c_int64
        in_use = library.bytes_in_use
        torch.utils.rename_privateuse1_backend("mychip")
        module = types.ModuleType("torch.mychip")
        module._lazy_init = lambda: None
        torch._register_device_module("mychip", module)
        import cyclescope

        class Holder:
            def __init__(self, held):
                self.held, self.me = held, self

        def make(size):
            return torch.empty(size, dtype=torch.int8, device="mychip")

        def rows(report):
            return sorted([b.device, b.bytes, b.confirmed] for l in report.leaks for b in l.buffers)
"""


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    source = Path(support.__path__[0]) / "standin" / "backend.cpp"
    library = tmp_path_factory.mktemp("backend") / "backend.so"
    root = Path(torch.__path__[0])
    include = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include"]
    command = [str(COMPILER), "-std=c++20", "-shared", "-fPIC", "-o", str(library), str(source)]
    command += [f"-I{folder}" for folder in include]
    subprocess.run([*command, f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu"], check=True)
    return lambda program: run(START.format(library=str(library)) + program)


def test_the_bytes_of_a_cycle_are_those_that_the_backend_counts(
    backend: Callable[[str], Any],
) -> None:
    said = backend("""
        before = in_use()
        Holder([make(1000), make(500).detach()])
        grown = in_use() - before
        found = rows(cyclescope.find_tensor_cycles(devices="mychip"))
        seen = []
        with cyclescope.observe_tensor_cycles(seen.append, devices="gpu") as watch:
            Holder(make(700))
            gc.collect()
            watch.flush()
        watched = [row for report in seen for row in rows(report)]
        print(json.dumps([grown, found, watched, in_use() - before]))
    """)
    assert said == [
        1500,
        [["mychip:0", 500, False], ["mychip:0", 1000, False]],
        [["mychip:0", 700, False]],
        0,
    ]


def test_which_devices_it_is(backend: Callable[[str], Any]) -> None:
    said = backend("""
        found = []
        all = ["any", "gpu", "mychip", "mychip:0", torch.device("mychip"), ["cpu", "mychip:0"]]
        for devices in [*all, "mychip:1", "cpu"]:
            Holder(make(1000))
            found.append(len(cyclescope.find_tensor_cycles(devices=devices).leaks))
        print(json.dumps(found))
    """)
    assert said == [1] * 6 + [0] * 2


def test_what_is_alive(backend: Callable[[str], Any]) -> None:
    said = backend("""
        kept = make(12345)
        Holder(kept.detach())
        heap = cyclescope.heap()
        leaks = cyclescope.find_tensor_cycles(devices="any").leaks
        sizes = [[b.device, b.bytes] for b in heap.buffers]
        print(json.dumps([sizes, heap.device_bytes, len(leaks)]))
    """)
    assert said == [[["mychip:0", 12345]], 12345, 0]
