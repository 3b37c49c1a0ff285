"""``cyclescope run --growth --oom``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.processes import python

try:
    import torch  # noqa: F401
except ImportError:
    pytest.skip("what grows is looked for in PyTorch's tensors", allow_module_level=True)

PROGRAM = """
import sys
import time

import torch

from cyclescope._live import growth

for monitor in growth._running:
    monitor._max_share = float("inf")  # the steps are too short for what samples take
    while not sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks:
        time.sleep(0.01)  # and the program too short for the import to be noticed
torch.set_num_threads(1)
net = torch.nn.Linear(512, 1024)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
outputs = []
for _ in range(40):
    optimizer.zero_grad()
    output = net(torch.ones(64, 512))
    output.square().mean().backward()
    outputs.append(output)
    optimizer.step()
"""


OWN = """
import cyclescope
own = cyclescope.watch_growth(every=1, devices="any", max_share=float("inf"))
"""
"""A program's own monitor."""


def run(tmp_path: Path, *options: str, source: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "train.py"
    program.write_text(source)
    command = [sys.executable, "-m", "cyclescope", "run", "--devices", "any"]
    return subprocess.run(
        [*command, "--report-dir", str(tmp_path / "reports"), *options, str(program)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
    )


@pytest.mark.long
def test_what_grows_with_the_steps_of_the_optimizer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CYCLESCOPE_GROWTH_EVERY", "1")
    done = run(tmp_path, "--growth", "--oom", "--fail-on-leak")
    assert done.returncode == 1, done.stderr
    grows = "module `__main__` → `outputs` accumulates tensors together with their autograd graphs"
    assert grows in " ".join(done.stderr.split())
    assert "no leaks" not in done.stderr
    assert "cyclescope: growth: memory +" in done.stderr
    assert "% explained by `outputs`" in done.stderr
    assert list((tmp_path / "reports").glob("oom-*")) == []
    (page,) = (tmp_path / "reports").glob("growth-*.html")
    assert f"cyclescope: growth report: {page}\n" in done.stderr
    assert "accumulates tensors together with their autograd graphs" in page.read_text()
    (found,) = json.loads(page.with_suffix(".json").read_text())["found"]
    assert found["owner"] == "module `__main__` → `outputs`"
    assert "kept-with-graph" in page.with_suffix(".txt").read_text()


def test_what_the_programs_own_monitor_finds_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CYCLESCOPE_GROWTH_EVERY", "1")
    source = PROGRAM.replace("outputs = []", f"outputs = []{OWN}")
    source = source.replace("    optimizer.step()", "    optimizer.step()\n    own.step()")
    done = run(tmp_path, "--growth", source=source)
    assert done.returncode == 0, done.stderr
    grows = "`outputs` accumulates tensors together with their autograd graphs"
    assert " ".join(done.stderr.split()).count(grows) == 1, done.stderr
    (page,) = (tmp_path / "reports").glob("growth-*.html")
    assert json.loads(page.with_suffix(".json").read_text())["steps"] == 40


def test_a_run_that_is_too_short_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "--growth")
    assert done.returncode == 0, done.stderr
    # On a machine that is busy, seconds without a step count as steps.
    early = r"too early to tell: \d+ of 13 samples; growth can be found from step \d+ on"
    assert re.search(
        rf"^cyclescope: growth: ({early}|memory .* in \d+ steps.*)$", done.stderr, re.M
    )


def test_without_the_option_nothing_is_looked_for(tmp_path: Path) -> None:
    done = run(tmp_path, "--fail-on-leak")
    assert done.returncode == 0, done.stderr
    assert "accumulates tensors" not in done.stderr
    assert list((tmp_path / "reports").glob("growth-*")) == []


def test_objects_that_grow_are_told_in_the_headline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CYCLESCOPE_GROWTH_EVERY", "1")
    done = run(tmp_path, "--growth", source=PROGRAM.replace(*EVENTS))
    assert done.returncode == 0, done.stderr
    since = r"( and [\d,]+ more (of their type )?since)?"
    told = rf"; (at least )?[\d,]+ objects( \([^)]+\))? in `outputs` at step \d+{since}$"
    assert re.search(told, done.stderr, re.MULTILINE), done.stderr


EVENTS = ("outputs.append(output)", "outputs.extend([1, []] for _ in range(2_000))")


def test_memory_without_a_gpu_is_said(tmp_path: Path) -> None:
    program = tmp_path / "plain.py"
    program.write_text("print(1)\n")
    done = python("-m", "cyclescope", "run", "--memory", str(program), timeout=120, check=True)
    assert done.stdout == "1\n"
    assert "cyclescope: memory: PyTorch uses no GPU in this process\n" in done.stderr


def test_what_grows_is_found_without_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CYCLESCOPE_GROWTH_EVERY", "1")
    source = """
        import time
        import numpy
        from cyclescope._live import growth

        kept = []
        end = time.monotonic() + 200
        while time.monotonic() < end and not any(each.found for each in growth._running):
            kept.append(numpy.zeros(1 << 14))
            time.sleep(0.01)
        """
    done = run(tmp_path, "--growth", "--devices=any", source=textwrap.dedent(source))
    assert re.search(r"\d+ % explained by `kept`", done.stderr), done.stderr
