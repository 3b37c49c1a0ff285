"""Workers of a DataLoader: silent and unharmed by a watch of their parent, watched if they ask."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cyclescope import CycleReport
from support.processes import python

PROGRAM = """
import functools, gc, sys
import torch
from torch.utils.data import DataLoader, Dataset
import cyclescope

folder, method, asks = sys.argv[1:]


class Sample:
    def __init__(self):
        self.tensor = torch.zeros(2**18)
        self.me = self


class Samples(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        Sample()
        gc.collect()
        return index


def ask(folder, worker):
    cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)


if __name__ == "__main__":
    watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)
    init = functools.partial(ask, folder) if asks == "asks" else None
    loader = DataLoader(
        Samples(), num_workers=2, multiprocessing_context=method, worker_init_fn=init
    )
    assert sorted(int(index) for batch in loader for index in batch) == list(range(8))
    assert not watch.leaks
"""


@pytest.mark.parametrize("asks", ["asks", "silent"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers(tmp_path: Path, method: str, asks: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = python("program.py", "leaks", method, asks, cwd=tmp_path, timeout=250)
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "leaks").glob("*.json"))
    reports = [CycleReport.from_json(file.read_text(encoding="utf-8")) for file in files]
    found = [[(leak.summary, leak.count) for leak in report.leaks] for report in reports]
    assert found == ([[("Sample.me → Sample", 4)]] * 2 if asks == "asks" else [])
    pids = {json.loads(report.to_json())["process"]["pid"] for report in reports}
    assert len(pids) == len(reports)
