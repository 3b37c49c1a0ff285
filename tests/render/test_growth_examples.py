"""What the documentation shows of each kind of growth is what is said of a program that grows so.

``growth/programs.json`` names the program of each pattern, and ``growth/PATTERN.txt`` has what is
said of it: ``docs/explained.py`` puts both into a page. To approve what has changed, run with
``APPROVE_TRACES=1`` and read the difference.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import cyclescope
from cyclescope import _native

torch = pytest.importorskip("torch")

import shared  # noqa: E402

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "growth"
PROGRAMS: dict[str, str] = json.loads((HERE / "programs.json").read_text("utf-8"))
STEPS = 300
FEWER_STEPS = {"state-not-detached": 180}
"""Of programs whose steps take ever longer."""
COUNTED = ("threads-grow", "files-grow")


pytestmark = pytest.mark.usefixtures("no_garbage")


def run(pattern: str, monitor: cyclescope.LeakMonitor) -> None:
    file, _, function = PROGRAMS[pattern].partition(":")
    name = Path(file).stem
    if file.startswith("fixtures/"):
        program = shared.load(name)
        program.pitfall("cpu", FEWER_STEPS.get(pattern, STEPS), monitor.step)
        return
    module = importlib.import_module(f"support.{name}")
    loop: Callable[[int, Callable[[], object]], None] = getattr(module, function)
    loop(STEPS, monitor.step)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("pattern", PROGRAMS)
def test_what_is_said_reads_as_approved(pattern: str) -> None:
    if pattern in COUNTED and not Path("/proc/self/fd").exists():
        pytest.skip("the system does not count these")
    monitor = cyclescope.LeakMonitor(every=10, devices="any", min_bytes=0, max_share=float("inf"))
    with monitor:
        run(pattern, monitor)
    found = monitor.found[0]
    if pattern == "grad-fn-kept" and found.pattern != pattern:
        pytest.skip("PyTorch itself keeps these objects, so who else does is not known")
    assert found.pattern == pattern
    said = str(found).replace(f"{ROOT}{os.sep}", "")
    said = (
        "\n".join(textwrap.wrap(said, 100, break_long_words=False, break_on_hyphens=False)) + "\n"
    )
    approved = HERE / f"{pattern}.txt"
    if os.environ.get("APPROVE_TRACES"):
        approved.write_text(said, "utf-8")
    assert without_numbers(said) == without_numbers(approved.read_text("utf-8"))


def without_numbers(said: str) -> str:
    """What is the same on every machine: how many objects a sample takes depends on the heap."""
    said = " ".join(said.split())
    said = re.sub(r" \(estimated from 1 in \d+ objects\)", "", said)
    # Of an object and the tuple that has it either may be counted first.
    said = said.replace("such as tuple with ", "such as ")
    # Of the tensors of one step any may be shown.
    said = re.sub(r"(?<=such as float32)\[[\d, ]+\]", "[]", said)
    return re.sub(r"\d[\d,.]*(?: [KM]iB| bytes)?", "0", said)


def test_every_pattern_has_a_program() -> None:
    pages = dict(_native.explanations())
    assert [name for name, _ in pages["Memory that grows"]] == list(PROGRAMS)
    assert {file.stem for file in HERE.glob("*.txt")} == PROGRAMS.keys()
