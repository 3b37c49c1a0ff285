"""Heaps, what keeps an object, and what grows, as text, JSON and pages."""

from __future__ import annotations

import gc
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import cyclescope
from cyclescope import _native
from support.processes import python

MIB = 1 << 20


@pytest.fixture
def module() -> Iterator[Any]:
    """A module of the program's own, to keep things in."""
    gc.collect()
    made = types.ModuleType("training")
    sys.modules["training"] = made
    yield made
    del sys.modules["training"]


def array(mebibytes: float = 1.0) -> Any:
    return numpy.zeros(int(mebibytes * MIB), dtype=numpy.uint8)


def test_branches_of_the_json_lead_to_each_buffer(module: Any) -> None:
    module.held = {"one": [array(), array()], "two": array(2)}
    data = json.loads(cyclescope.heap().to_json())
    branches = data["branches"]

    def way(branch: int | None) -> list[str]:
        if branch is None:
            return []
        each = branches[branch]
        return [*way(each["parent"]), f"{each['edge']} {each['label']}".strip()]

    ways = [way(buffer["branch"]) for buffer in data["buffers"]]
    mine = [each for each in ways if each[0] == "module `training`"]
    assert sorted(mine) == [
        [
            "module `training`",
            ".held dict, 2 items",
            "['one'] list, 2 items",
            f"[{index}] ndarray",
        ]
        for index in range(2)
    ] + [["module `training`", ".held dict, 2 items", "['two'] ndarray"]]
    assert data["process"]["python"] == ".".join(map(str, sys.version_info[:3]))


def test_a_branch_says_what_only_its_object_keeps(module: Any) -> None:
    shared = array(2)
    module.first = [shared, array(4)]
    module.second = [shared]
    del shared
    data = json.loads(cyclescope.heap().to_json())
    mine = {
        branch["edge"]: branch["retained"]
        for branch in data["branches"]
        if branch["edge"] in (".first", ".second", "[1]") and branch["label"] != "str"
    }
    assert mine[".first"] == [0, 4 * MIB]
    assert mine.get(".second", [0, 0]) == [0, 0]


def test_further_ways_to_the_largest_are_told(module: Any) -> None:
    module.first = [array(64)]
    module.second = {"also": module.first[0]}
    (largest, *_) = cyclescope.heap().buffers
    assert largest.owner == "module `training` → `first` (list, 1 item) → [0] → ndarray"
    assert "module `training` → `second` (dict, 1 item) → ['also'] → ndarray" in largest.also
    assert largest.owner not in largest.also


def test_a_change_is_told_by_owner_too(module: Any) -> None:
    module.kept = [array()]
    before = cyclescope.heap()
    module.kept += [array(), (array(),)]
    diff = cyclescope.heap().diff(before)
    (mine,) = [row for row in json.loads(diff.to_json())["owners"] if "`kept`" in row["name"]]
    assert mine["name"] == "module `training` → `kept` (list)"
    assert (mine["bytes"], mine["now_bytes"], mine["buffers"]) == (2 * MIB, 3 * MIB, 2)
    page = diff.to_html()
    for told in ("1.0 MiB</td>", "3.0 MiB</td>", "+2.0 MiB</td>"):
        assert told in page


def test_texts_are_those_that_are_printed(module: Any) -> None:
    module.kept = [array()]
    heap = cyclescope.heap()
    retention = cyclescope.why_alive(module.kept)
    diff = heap.diff(heap)
    for each in (heap, heap.top(), retention, diff):
        assert each.to_text() == str(each)
    for each in (heap, retention, diff):
        assert each.to_html().endswith("</html>\n")
        assert each._repr_html_().startswith("<iframe ")


def test_redacted_pages_name_neither_machine_nor_folder(tmp_path: Path) -> None:
    import os

    program = tmp_path / "train.py"
    program.write_text(
        "import cyclescope, numpy\n"
        "kept = [numpy.zeros(2**20)]\n"
        "cyclescope.find_tensor_cycles(devices='any', redact=True)\n"
        "print(cyclescope.heap().to_html().partition('<main>')[0])\n"
    )
    done = python(str(program), timeout=120, check=True)
    assert "<dd>train.py</dd>" in done.stdout
    assert str(tmp_path) not in done.stdout
    assert f"<dd>{os.uname().nodename}</dd>" not in done.stdout


@pytest.mark.parametrize("text", ["", "null", '{"found": 1}', '{"steps": -1}'])
def test_what_is_no_report_is_refused(text: str) -> None:
    what = "JSON, but not of a" if text else "not JSON"
    with pytest.raises(ValueError, match=f"this is {what}.* pass the text that .*to_json"):
        _native.GrowthReport.from_json(text)
    with pytest.raises(ValueError, match=f"this is {what}.* pass the text that .*to_json"):
        _native.PostMortem.from_json(text.replace("found", "owners").replace("steps", "cycles"))


def test_numbers_of_any_size_are_shown() -> None:
    most = 2**64 - 1
    report = {
        "found": [{"bytes": most, "step": most, "history": [[0, 0, 0], [most, most, most]]}],
        "all": [[most, most, most], [0, 0, 0]],
    }
    page = _native.GrowthReport.from_json(json.dumps(report)).to_html()
    numbers = {"requested": most, "limit": 0, "reserved": most, "allocated": most}
    found = {"numbers": numbers, "roles": {"a": most, "b": most}}
    page += _native.PostMortem.from_json(json.dumps(found)).to_html()
    assert "16.0 EiB" in page
    assert "NaN" not in page


def test_the_memory_of_a_device_comes_back_from_json() -> None:
    row = {"name": "parameters", "bytes": 3 * MIB, "freed_by": "deleting the model"}
    text = json.dumps({"device": "cuda:0", "total": 8 * MIB, "free": 5 * MIB, "rows": [row]})
    memory = _native.DeviceMemory.from_json(text)
    assert (memory.device, memory.in_use, memory.rows[0].bytes) == ("cuda:0", 3 * MIB, 3 * MIB)
    assert _native.DeviceMemory.from_json(memory.to_json()).to_json() == memory.to_json()
    with pytest.raises(ValueError, match="EOF"):
        _native.DeviceMemory.from_json("[")
    for other in "{}", _native.empty_report().to_json():
        with pytest.raises(ValueError, match="JSON, but not of a DeviceMemory: pass"):
            _native.DeviceMemory.from_json(other)


def test_each_of_two_items_that_were_asked_about_is_marked(module: Any) -> None:
    module.rows = [numpy.zeros(5), numpy.zeros(6)]
    page = cyclescope.why_alive(*module.rows).to_html()
    drawing = page.partition("<svg")[2].partition("</svg>")[0]
    assert drawing.count("node buffer held") == 2
    assert "40 bytes" in drawing
    assert "48 bytes" in drawing


def test_a_result_that_comes_from_json_is_of_the_process_that_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["reader_of_this_test.py"])
    program = tmp_path / "trainer_of_this_test.py"
    program.write_text(
        "import cyclescope\n"
        "from cyclescope import _native\n"
        "with cyclescope.watch_growth(devices='any') as monitor: monitor.sample()\n"
        "open('growth.json', 'w').write(monitor.to_json())\n"
        "died = _native.Examination('cuda:0', 1.0).found\n"
        "open('died.json', 'w').write(died.to_json())\n"
        "print(died.process.program, died.process.pid)\n"
    )
    said = python(program.name, cwd=tmp_path).stdout.split()
    assert said[0] == program.name
    for kind, name in (("GrowthReport", "growth.json"), ("PostMortem", "died.json")):
        text = (tmp_path / name).read_text()
        assert json.loads(text)["process"]["pid"] == int(said[1])
        page = getattr(_native, kind).from_json(text).to_html()
        assert program.name in page
        assert "reader_of_this_test" not in page
        # One that says nothing of its process is nobody's.
        without = json.loads(text)
        del without["process"]
        page = getattr(_native, kind).from_json(json.dumps(without)).to_html()
        assert "Python" not in page.partition("<h1")[2].partition("<section")[0]
