"""Training with Accelerate that collects with ``cyclescope.step()``: one process, and two ranks.

``make test-frameworks`` runs this with the package as it is, as a user starts it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
BATCHES = 12
LAUNCHERS = {
    "accelerate": (1, ["accelerate.commands.launch", "--cpu", "--num_processes", "1"]),
    "torchrun": (2, ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]),
}
"""How many processes each starts, and its command: on the CPU, only torchrun starts several."""
ACTIVATIONS = 4 * 64 * 4
"""A batch of four rows of 64 floats."""

PROGRAM = """\
import gc, json, sys
import torch
from accelerate import Accelerator
import cyclescope

class Metrics:
    def __init__(self, activations):
        self.activations = activations.detach().clone()
        self.summary = lambda: self.activations.mean()

leaky, folder = sys.argv[1] == "leaky", sys.argv[2]
gc.disable()
accelerator = Accelerator(cpu=True)
network = torch.nn.Linear(64, 64)
model, optimizer, data = accelerator.prepare(
    network,
    torch.optim.SGD(network.parameters(), lr=0.1),
    torch.utils.data.DataLoader(torch.randn(48, 64), batch_size=4),
)
held = []
for batch in data:
    output = model(batch)
    if leaky:
        Metrics(output)
    accelerator.backward(output.square().mean())
    optimizer.step()
    optimizer.zero_grad()
    del output
    found = cyclescope.step(every=2, devices="any")
    if found is not None:
        held.append(found.bytes_held)
        merged = cyclescope.gather(found.report)
signatures = [leak.signature for leak in merged.leaks] if merged is not None else []
result = {"held": held, "signatures": signatures, "rank": accelerator.process_index}
with open(f"{folder}/{accelerator.process_index}.json", "w") as file:
    json.dump(result, file)
accelerator.end_training()
"""


def launch(folder: Path, launcher: str, kind: str) -> tuple[list[dict[str, Any]], str]:
    """What each process says of itself, and what all of them log."""
    program = folder / "train.py"
    program.write_text(PROGRAM, "utf-8")
    processes, command = LAUNCHERS[launcher]
    done = subprocess.run(
        [sys.executable, "-m", *command, program, kind, folder],
        env=os.environ
        | {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "CYCLESCOPE_MIN_BYTES": "0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("[0-9].json"))]
    assert [result["rank"] for result in results] == list(range(processes))
    return results, done.stderr


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_each_process_tells_its_leaks_and_one_those_of_all(tmp_path: Path, launcher: str) -> None:
    results, logged = launch(tmp_path, launcher, "leaky")
    steps = BATCHES // len(results)
    # Each step leaks its activations.
    assert [sum(result["held"]) for result in results] == [steps * ACTIVATIONS] * len(results)
    assert len(results[0]["signatures"]) == 1
    assert "Metrics.summary → <lambda>" in logged
    if len(results) > 1:
        assert "reference cycles held tensors on 2 of 2 ranks" in logged


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_without_leaks_nothing_is_said(tmp_path: Path, launcher: str) -> None:
    results, logged = launch(tmp_path, launcher, "clean")
    collections = BATCHES // len(results) // 2
    assert [result["held"] for result in results] == [[0] * collections] * len(results)
    assert "reference cycle" not in logged
