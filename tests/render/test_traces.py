"""Does the trace of each fixture read as it was approved, and is the code in its advice Python?

``traces/NAME.txt`` is the trace of ``fixtures/NAME.py``. To approve what it has become, run
with ``APPROVE_TRACES=1`` and read the difference.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest

import common
import cyclescope
from cyclescope import _native

ROOT = Path(__file__).parents[2]
TRACES = Path(__file__).parent / "traces"
APPROVE = bool(os.environ.get("APPROVE_TRACES"))


def leaking() -> list[str]:
    text = "EXPECTED = Expected(leaks=0"
    programs = {name: (ROOT / "fixtures" / f"{name}.py").read_text() for name in common.names()}
    return [name for name, source in programs.items() if text not in re.sub(r"\(\s+", "(", source)]


@pytest.fixture(autouse=True)
def first_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch numbers its hooks over the whole process; the number decides where a line breaks."""
    if hooks := sys.modules.get("torch.utils.hooks"):
        monkeypatch.setattr(hooks.RemovableHandle, "next_id", 0)


@pytest.mark.parametrize("name", leaking())
def test_trace_reads_as_approved_and_its_code_is_python(name: str) -> None:
    try:
        fixture = common.load(name)
    except SkipTest as reason:
        pytest.skip(str(reason))
    with common.collector_paused():
        fixture.leak("cpu")
        report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    for leak in report.leaks:
        # What a watch logs is read in a terminal.
        assert max(map(len, leak.to_text().splitlines())) <= 100
        for code in filter(None, [leak.before, leak.after]):
            code = code if not code.startswith("except ") else f"try:\n    ...\n{code}"
            ast.parse("async def program():\n" + textwrap.indent(code, "    "))
    trace = str(
        cyclescope.CycleReport.from_json(json.dumps(anywhere(json.loads(report.to_json()))))
    )
    trace = trace[trace.index("LEAK 1") :]
    # Hooks are numbered over the whole process.
    trace = re.sub(r"OrderedDict\[\d+\]|(?<=↓ )\[\d+\]$", "[x]", trace, flags=re.MULTILINE)
    approved = TRACES / f"{name}.txt"
    if APPROVE:
        approved.write_text(trace)
    assert trace == approved.read_text()


def test_every_pattern_has_a_trace() -> None:
    traces = "\n".join(path.read_text() for path in TRACES.glob("*.txt"))
    told = set(re.findall(r"cyclescope explain ([a-z-]+)$", traces, flags=re.MULTILINE))
    assert told == {name for name, _ in _native.patterns()}


def test_every_trace_has_its_fixture() -> None:
    assert {path.stem for path in TRACES.glob("*.txt")} == set(leaking())


def anywhere(value: Any) -> Any:
    """A report without what differs from machine to machine: folders, lines of libraries, versions,
    and whether tensors are PyTorch's or NumPy's."""
    if isinstance(value, list):
        return [anywhere(item) for item in value]
    if isinstance(value, str):
        value = value.replace(f"{ROOT}{os.sep}", "").replace("numpy.ndarray", "torch.Tensor")
        return value.replace("ndarray", "Tensor")
    if not isinstance(value, dict):
        return value
    if set(value) == {"file", "line"}:
        file = Path(value["file"])
        # The environment may lie within the repository, or the repository within another.
        outside = file.is_absolute() and ROOT not in file.parents
        if outside or "site-packages" in file.parts:
            return {"file": file.name, "line": 0}
    value = {key: anywhere(item) for key, item in value.items()}
    if "signature" in value:
        value["signature"] = "signature"
        value["summary"] = re.sub(r"OrderedDict\[\d+\]", "OrderedDict[x]", value["summary"])
    if set(value) >= {"name", "version", "your_line"}:
        value["version"] = None
    return value
