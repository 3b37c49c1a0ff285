"""Four ranks on this machine's CPU, started by torchrun, with gloo."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cyclescope import CycleReport
from support.processes import python

RANKS = 4

PROGRAM = """
import gc, json
from pathlib import Path
import torch
import torch.distributed as dist
import cyclescope

gc.disable()
dist.init_process_group("gloo")
rank = dist.get_rank()
watch = cyclescope.warn_tensor_cycles(devices="any", report_dir="leaks")


class Node:
    def __init__(self):
        self.tensor = torch.zeros(2**18)
        self.me = self


class OnlyOnTwo(Node):
    pass


collected = []
for number in range(1, 7):
    for _ in range(rank):
        Node()
    if rank == 2:
        OnlyOnTwo()
    if cyclescope.step(every=3, devices="any") is not None:
        collected.append(number)
    dist.barrier()

watch.flush()
merged = cyclescope.gather(watch.report)
# A file for each: what ranks print may come in one line.
said = json.dumps({
    "rank": rank,
    "collected": collected,
    "merged": None if merged is None else [
        [leak.summary, leak.count, leak.bytes_held] for leak in merged.leaks
    ],
    "current": [cyclescope.current_rank().rank, cyclescope.current_rank().world_size],
})
Path(f"said-{rank}").write_text(said)
nothing = cyclescope.gather(None)
assert nothing is None
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, f"--nproc-per-node={RANKS}", "train.py"],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, done


Job = tuple[Path, subprocess.CompletedProcess[str]]


def said(job: Job) -> dict[int, dict[str, object]]:
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in job[0].glob("said-*")]
    return {row["rank"]: row for row in rows}


def test_all_ranks_collect_in_the_same_steps(job: Job) -> None:
    rows = said(job)
    assert sorted(rows) == list(range(RANKS))
    assert all(row["collected"] == [3, 6] for row in rows.values())
    assert all(row["current"] == [rank, RANKS] for rank, row in rows.items())


def test_rank_0_has_one_report_of_all_and_warns_once(job: Job) -> None:
    rows = said(job)
    assert rows[0]["merged"] == [
        ["Node.me → Node", 36, 36 * 2**20],
        ["OnlyOnTwo.me → OnlyOnTwo", 6, 6 * 2**20],
    ]
    assert [row["merged"] for rank, row in rows.items() if rank] == [None] * (RANKS - 1)
    errors = job[1].stderr
    assert errors.count("reference cycles held tensors on 3 of 4 ranks") == 1
    table = errors[errors.index("reference cycles held tensors on") :].splitlines()
    assert table[1].split()[-7:] == ["rank", "1", "rank", "2", "rank", "3", "total"]
    assert table[2].split()[1:] == ["6.0", "12.0", "18.0", "36.0"]
    assert table[3].split()[1:] == ["-", "6.0", "-", "6.0"]


def test_each_rank_leaves_files_of_its_own_with_its_counts(job: Job) -> None:
    files = sorted((job[0] / "leaks").glob("*.json"))
    assert [file.name.partition("-")[0] for file in files] == ["rank1", "rank2", "rank3"]
    counts = []
    for file in files:
        report = CycleReport.from_json(file.read_text(encoding="utf-8"))
        counts.append({leak.summary: leak.count for leak in report.leaks})
    two = {"Node.me → Node": 12, "OnlyOnTwo.me → OnlyOnTwo": 6}
    assert counts == [{"Node.me → Node": 6}, two, {"Node.me → Node": 18}]
    pages = sorted(page.name for page in (job[0] / "leaks").glob("*.html"))
    assert len(pages) >= 3
    assert len({page.split("-")[1] for page in pages}) == 3


def test_the_command_makes_one_page_with_a_column_a_rank(job: Job) -> None:
    done = python("-m", "cyclescope", "merge", "leaks/*.json", "-o", "all.html", cwd=job[0])
    assert (done.returncode, done.stderr) == (0, "")
    page = (job[0] / "all.html").read_text(encoding="utf-8")
    (table,) = re.findall('<section class="sheet" id="ranks".*?</section>', page)
    heads = re.findall('<th [^>]*scope="col">([^<]*)</th>', table)
    assert heads == ["Leak", "All", "rank 1", "rank 2", "rank 3"]
    cells = re.findall("<td [^>]*>([^<]*)</td>", table)
    assert cells[:4] == ["36.0", "6.0", "12.0", "18.0"]


def test_a_program_under_torchrun_needs_no_change(tmp_path: Path) -> None:
    source = PROGRAM.partition("watch = ")[0].replace("import cyclescope", "")
    source += "class Node:\n    def __init__(self):\n"
    source += "        self.tensor, self.me = torch.zeros(2**18), self\n\nNode()\n"
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = ["-m", "cyclescope", "run", "--devices=any", "--report-dir=leaks", "--fail-on-leak"]
    done = python(
        *[*torchrun, *command, "train.py"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=280,
    )
    assert done.returncode != 0
    files = sorted(file.name for file in (tmp_path / "leaks").glob("*.json"))
    assert [name.partition("-")[0] for name in files] == ["rank0", "rank1"]
