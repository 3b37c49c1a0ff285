"""Two ranks on two GPUs, with NCCL."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cyclescope
from support import debug_server

pytestmark = pytest.mark.gpu

MIB = 2**20

PROGRAM = """
import gc, json
import torch
import torch.distributed as dist
import cyclescope

gc.disable()
rank = cyclescope.current_rank()
torch.cuda.set_device(rank.local_rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank.local_rank))
watch = cyclescope.warn_tensor_cycles(report_dir="leaks")


class Node:
    def __init__(self):
        self.tensor = torch.zeros(2**18, device="cuda")
        self.me = self


for _ in range(4):
    for _ in range(1 + rank.rank):
        Node()
    cyclescope.step(every=2)
watch.flush()
merged = cyclescope.gather(watch.report)
if merged is not None:
    (leak,) = merged.leaks
    print(json.dumps({
        "rank": rank.rank,
        "count": leak.count,
        "held": leak.bytes_held,
        "devices": sorted({buffer.device for buffer in leak.buffers}),
        "confirmed": all(buffer.confirmed for buffer in leak.buffers),
    }), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def _two_gpus() -> None:
    count = torch.cuda.device_count()
    if count < 2:
        pytest.skip(f"needs two GPUs, and there is {count}")


def test_two_gpus_gather_over_nccl(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node=2", "train.py"),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert json.loads(line) == {
        "rank": 0,
        "count": 12,
        "held": 12 * MIB,
        "devices": ["cuda:0", "cuda:1"],
        "confirmed": True,
    }
    assert done.stderr.count("reference cycles held tensors on 2 of 2 ranks") == 1
    files = sorted((tmp_path / "leaks").glob("*.json"))
    assert [file.name.partition("-")[0] for file in files] == ["rank0", "rank1"]
    for file, leaked in zip(files, (4, 8), strict=True):
        report = cyclescope.CycleReport.from_json(file.read_text(encoding="utf-8"))
        assert [leak.count for leak in report.leaks] == [leaked]


def test_the_debug_server_shows_both_gpus_while_nccl_waits(tmp_path: Path) -> None:
    pages = debug_server.ask(tmp_path, 2, "nccl")
    assert pages.totals == ["total 1.0 True True"] * 2
    lines = re.findall(r"<summary>Rank \d: (.*)</summary>", pages.memory)
    assert [line.partition(" on devices")[0] for line in lines] == ["7.0 MiB", "8.0 MiB"]
    assert "no leaks" in lines[0]
    assert "1 leak holds 1.0 MiB in cycles" in lines[1]
    assert "self.on_step = lambda: self" in pages.memory
    assert "on_step" in pages.leaks
    assert "cuda:1" in pages.leaks
