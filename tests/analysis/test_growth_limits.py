"""What the program's source limits or empties is not told while it may be filling; what nothing
limits is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.limitless import LEAKS
from support.limits import FILLING as USUAL
from support.limits_elsewhere import ELSEWHERE, HELPER
from support.marks import needs_torch
from support.processes import python

pytestmark = needs_torch

FILLING = USUAL | ELSEWHERE

RUN = """
import importlib, json, sys, cyclescope
told = {}
for name in sys.argv[1:]:
    program = importlib.import_module(name)
    monitor = cyclescope.LeakMonitor(devices="any", min_bytes=0)
    with monitor:
        run = getattr(program, "run", None)
        if run is not None:
            run(monitor.sample)
        else:
            for number in range(24):
                program.step(number)
                monitor.sample()
    limited = json.loads(monitor.to_json())["limited"]
    told[name] = {
        "owners": [it.owner for it in monitor.found if name in it.owner],
        "limited": [
            sorted(line["marked"] for line in it["limited_at"])
            for it in limited if name in it["owner"]
        ],
        "headline": monitor.headline,
    }
    # What another program has is not to be seen as this one's.
    vars(program).clear()
print(json.dumps(told))
"""

IMPORTS = "import collections, heapq, random, torch\n"


def _write(folder: Path, programs: dict[str, str]) -> list[str]:
    names = []
    for number, text in enumerate(programs.values()):
        # A name that no other begins with.
        names.append(f"program_{number}_")
        (folder / f"{names[-1]}.py").write_text(IMPORTS + text)
    return names


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is told of each program; all of them run in one process."""
    folder = tmp_path_factory.mktemp("limits")
    programs = FILLING | LEAKS
    names = _write(folder, programs)
    (folder / "run.py").write_text(RUN)
    (folder / "helper_of_programs.py").write_text(HELPER)
    found = json.loads(python("run.py", *names, cwd=folder, check=True).stdout)
    return {title: found[name] for title, name in zip(programs, names, strict=True)}


@pytest.mark.parametrize("title", FILLING)
def test_what_may_be_filling_is_not_told_and_its_limit_is_named(
    title: str, told: dict[str, Any]
) -> None:
    lines = (IMPORTS + FILLING[title]).splitlines()
    wanted = [number for number, line in enumerate(lines, 1) if line.endswith("# here")]
    assert told[title]["owners"] == []
    assert told[title]["limited"] == [wanted]
    assert "may be limited by" in told[title]["headline"]


@pytest.mark.parametrize("title", LEAKS)
def test_what_nothing_limits_is_told(title: str, told: dict[str, Any]) -> None:
    assert len(told[title]["owners"]) == 1
    assert told[title]["limited"] == []
