"""Two workers of Ray Train, each of which calls ``warn_tensor_cycles()`` in its training function.

``make test-frameworks`` installs Ray, and runs this with it on the CPU, as a user starts it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORKERS = 2
STEPS = 5
BYTES = 4 * 64 * 4
"""A batch of four rows of 64 floats."""

PROGRAM = """\
import gc, json, sys
from pathlib import Path
import ray
import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train(settings):
    import torch
    import cyclescope

    class Metrics:
        def __init__(self, activations):
            self.activations = activations.detach().clone()
            self.summary = lambda: self.activations.mean()

    folder = Path(settings["folder"])
    watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=folder / "pages", min_bytes=0)
    model = ray.train.torch.prepare_model(torch.nn.Linear(64, 64))
    for _ in range(settings["steps"]):
        output = model(torch.randn(4, 64))
        if settings["leaky"]:
            Metrics(output)
        output.square().mean().backward()
        del output
    gc.collect()
    watch.flush(60)
    own = [[it.count, it.bytes] for it in watch.leaks if "Metrics" in it.summary]
    rank = ray.train.get_context().get_world_rank()
    current = cyclescope.current_rank()
    told = {"rank": current and current.rank, "leaks": own}
    (folder / f"{rank}.json").write_text(json.dumps(told))
    watch.stop()


if __name__ == "__main__":
    leaky, folder, steps = sys.argv[1] == "leaky", sys.argv[2], int(sys.argv[3])
    ray.init(num_cpus=3, include_dashboard=False)
    TorchTrainer(
        train,
        train_loop_config={"folder": folder, "steps": steps, "leaky": leaky},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=f"{folder}/ray"),
    ).fit()
    ray.shutdown()
"""


@pytest.mark.parametrize("leaky", [True, False])
def test_each_worker_tells_its_leaks(tmp_path: Path, leaky: bool) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM, "utf-8")
    kind = "leaky" if leaky else "clean"
    done = subprocess.run(
        [sys.executable, program, kind, tmp_path, str(STEPS)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(file.read_text("utf-8")) for file in sorted(tmp_path.glob("[0-9].json"))]
    expected = [[STEPS, STEPS * BYTES]] if leaky else []
    assert results == [{"rank": rank, "leaks": expected} for rank in range(WORKERS)]
    pages = [file.read_text("utf-8") for file in tmp_path.glob("pages/*.html")]
    assert sum("Metrics" in page for page in pages) == (WORKERS if leaky else 0)
