"""``on_signal()`` while the main thread waits for a GPU, and while it captures a CUDA graph."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cyclescope
from cyclescope._native import CycleReport, Heap
from support.nodes import SOURCE

pytestmark = pytest.mark.gpu

MIB = 2**20
SECONDS = 120

HEAD = f"""
import gc, os, sys, time
import numpy
import torch
import cyclescope
{SOURCE}
gc.disable()
watch = cyclescope.on_signal("USR2", "answers")
history = [torch.ones({MIB}, dtype=torch.uint8, device="cuda") for _ in range(3)]
leak = Node()
leak.array = torch.ones({MIB}, dtype=torch.uint8, device="cuda")
del leak
"""

WAITING = """
for _ in range(40):
    torch.cuda._sleep(2_000_000_000)  # a second or so each
print("ready", flush=True)
torch.cuda.synchronize()
print(sum(int(it.sum()) for it in history), flush=True)
"""

CAPTURING = """
inputs = torch.ones(64, 64, device="cuda")
inputs @ inputs
torch.cuda.synchronize()
print("ready", flush=True)
for _ in range(50):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = inputs
        for _ in range(200):
            outputs = (outputs @ inputs) / 64
    graph.replay()
torch.cuda.synchronize()
print(float(outputs.sum()), len(watch.reports), watch.errors, flush=True)
"""


def start(folder: Path, source: str) -> subprocess.Popen[str]:
    running = subprocess.Popen(
        [sys.executable, "-c", HEAD + source],
        env=os.environ | {"PYTHONPATH": str(Path(cyclescope.__path__[0]).parent)},
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    return running


def test_it_answers_while_the_main_thread_waits_for_the_gpu(tmp_path: Path) -> None:
    running = start(tmp_path, WAITING)
    running.send_signal(signal.SIGUSR2)
    deadline = time.monotonic() + SECONDS
    while not (found := list((tmp_path / "answers").glob("signal-*.txt"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert running.poll() is None
    stem = str(found[0]).removesuffix(".txt")
    heap = Heap.from_json(Path(f"{stem}-heap.json").read_text("utf-8"))
    kept = [each for each in heap.buffers if "history" in each.owner]
    assert [(each.bytes, each.device) for each in kept] == [(MIB, "cuda:0")] * 3
    report = CycleReport.from_json(Path(f"{stem}-cycles.json").read_text("utf-8"))
    (leak,) = report.leaks
    assert leak.bytes_held == MIB
    assert all(buffer.confirmed for buffer in leak.buffers)
    said, _ = running.communicate(timeout=SECONDS)
    assert (running.returncode, said) == (0, f"{3 * MIB}\n")


def test_a_capture_goes_on(tmp_path: Path) -> None:
    running = start(tmp_path, CAPTURING)
    while running.poll() is None:
        running.send_signal(signal.SIGUSR2)
        time.sleep(0.01)
    said, _ = running.communicate(timeout=SECONDS)
    total, answers, errors = said.split(maxsplit=2)
    assert (running.returncode, errors.strip()) == (0, "[]")
    assert float(total) == pytest.approx(64 * 64, rel=1e-4)
    assert int(answers) >= 1
