"""Each leak counts once, however many files tell of it."""

from __future__ import annotations

import gc
import itertools
import json
from pathlib import Path

import pytest

import cyclescope
from cyclescope import CycleReport, _native
from cyclescope.__main__ import main
from support.nodes import Holder, Node

pytestmark = pytest.mark.usefixtures("collector_paused")

MIB = 2**20


def found(kind: type = Node) -> CycleReport:
    """A leak of 1 MiB, of its own time."""
    Node() if kind is Node else Holder(Node().array)
    return cyclescope.find_tensor_cycles(devices="any", frozen=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    gc.collect()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").mkdir()
    for name in "one", "two":
        (tmp_path / f"reports/{name}.json").write_text(found().to_json(), "utf-8")
    return tmp_path


def held(*arguments: str) -> int:
    """What all leaks of these reports held, in MiB."""
    assert main(["report", *arguments, "-o", "sum.json"]) == 0
    return CycleReport.from_json(Path("sum.json").read_text("utf-8")).bytes_held // MIB


def test_what_another_file_says_too_counts_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert held("reports") == 2
    (folder / "reports/again.json").write_bytes((folder / "reports/one.json").read_bytes())
    assert held("reports") == held("reports/one.json", "reports") == 2
    for _ in range(2):
        assert main(["merge", "reports/*.json", "-o", "reports/all.json"]) == 0
        assert held("reports") == held("reports/all.json") == 2
    (folder / "reports/other.json").write_text(found(Holder).to_json(), "utf-8")
    assert held("reports") == 3
    assert capsys.readouterr().err == ""


def test_files_that_have_some_in_common_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = CycleReport.from_json((folder / "reports/one.json").read_text("utf-8"))
    merged = _native.merge([one, found(Holder)])
    other = _native.merge([one, found()])
    for name, report in {"a": merged, "b": other}.items():
        (folder / f"{name}.json").write_text(report.to_json(), "utf-8")
    assert held("a.json", "b.json") == 4
    said = "a.json and b.json have some of the same occurrences, which count twice\n"
    assert capsys.readouterr().err == said


def test_a_file_of_a_watch_and_that_of_run_count_once(folder: Path) -> None:
    with cyclescope.warn_tensor_cycles(devices="any", min_bytes=0, report_dir="watch") as watch:
        for _ in range(300):
            Node()
            gc.collect()
        watch.flush(60)
    report = watch.report
    assert report is not None
    (folder / "watch/run.json").write_text(report.to_json(), "utf-8")
    assert held("watch") == 300


def test_an_existing_file_is_no_pattern(folder: Path) -> None:
    (folder / "rank [0]").mkdir()
    for name in "rank [0]/a.json", "a[1].json":
        (folder / "reports/one.json").rename(folder / name)
        assert held(name) == held(str(Path(name).parent)) if "/" in name else held(name) == 1
        (folder / name).rename(folder / "reports/one.json")
    assert held("reports/[!x]*.json") == 2


def test_reports_that_no_longer_have_each_occurrence_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "one", "two":
        with cyclescope.warn_tensor_cycles(devices="any", report_dir=None) as watch:
            for _ in range(150):
                Node()
                gc.collect()
        report = watch.report
        assert report is not None
        (folder / f"reports/{name}.json").write_text(report.to_json(), "utf-8")
    assert main(["merge", "reports/one.json", "reports/two.json", "-o", "all.json"]) == 0
    assert capsys.readouterr().err == ""
    assert held("all.json", "reports/one.json") == 300 + 150
    assert "occurrences that are in both count twice" in capsys.readouterr().err


def test_an_occurrence_without_a_rank(folder: Path) -> None:
    one = json.loads((folder / "reports/one.json").read_text("utf-8"))
    for leak in one["leaks"]:
        for each in leak["occurrences"]:
            each.pop("rank", None)
    (folder / "reports/one.json").write_text(json.dumps(one), "utf-8")
    assert held("reports") == 2


def test_files_that_cannot_be_read_are_named_and_the_rest_is_merged(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = (folder / "reports/one.json").read_text("utf-8")[:-200]
    (folder / "reports/cut.json").write_text(cut, "utf-8")
    (folder / "reports/binary.json").write_bytes(b"\x89PNG\xff")
    for command in ("report", "merge"):
        assert main([command, "reports", "gone.json", "-o", f"{command}.json"]) == 2
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 3, told
        assert told[0].startswith("left out: reports/binary.json: this is not text")
        assert told[1].startswith("left out: reports/cut.json: ")
        assert told[2] == "left out: cannot read gone.json: No such file or directory"
        merged = CycleReport.from_json(Path(f"{command}.json").read_text("utf-8"))
        assert merged.bytes_held // MIB == 2
    # A comparison with half of the earlier reports would call their leaks new.
    with pytest.raises(SystemExit, match="2"):
        main(["report", "reports/one.json", "--against", "reports"])
    assert "binary.json" in capsys.readouterr().err


def looked() -> CycleReport:
    """What a signal or ``cyclescope attach`` reports: garbage that is still there."""
    return _native.look(["any"])


def test_garbage_that_is_only_looked_at_counts_once(tmp_path: Path) -> None:
    gc.collect()
    Node()
    looks = [looked(), looked()]
    assert [look.bytes_held // MIB for look in looks] == [1, 1]
    Node()
    looks.append(looked())
    (leak,) = _native.merge(looks).leaks
    assert (leak.count, leak.bytes_held // MIB) == (2, 2)
    collected = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    for order in ([*looks, collected], [collected, *looks], [looks[2], collected, *looks[:2]]):
        (leak,) = _native.merge(order).leaks
        assert (leak.count, leak.bytes_held // MIB) == (2, 2)
        merged = json.loads(_native.merge_processes(order).to_json())
        assert [sum(it["bytes_held"].values()) // MIB for it in merged["processes"]] == [2]
    Node()
    (leak,) = _native.merge([collected, looked()]).leaks
    assert (leak.count, leak.bytes_held // MIB) == (3, 3)
    gc.collect()


def test_frozen_garbage_and_other_ranks_add_to_what_was_looked_at() -> None:
    gc.collect()
    Node()
    look = looked()
    collected = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    Node()
    gc.freeze()
    try:
        frozen = [cyclescope.find_tensor_cycles(devices="any") for _ in range(2)]
    finally:
        gc.unfreeze()
    other = json.loads(collected.to_json())
    other["process"] |= {"pid": 1, "rank": 5}
    for leak in other["leaks"]:
        for seen in leak["occurrences"]:
            seen |= {"pid": 1, "rank": 5}
    reports = [look, collected, *frozen, CycleReport.from_json(json.dumps(other))]
    for order in itertools.permutations(reports):
        one, *rest = order
        nested = _native.merge([_native.merge([one, rest[0]]), _native.merge(rest[1:])])
        for merged in (_native.merge(list(order)), nested):
            (leak,) = merged.leaks
            assert (leak.count, leak.bytes_held // MIB, leak.frozen) == (3, 3, 1)
            assert merged.bytes_held == leak.bytes_held
    gc.collect()


def test_memory_that_two_leaks_share_is_not_counted_twice() -> None:
    gc.collect()
    node = Node()
    Holder(node.array)
    del node
    look = looked()
    collected = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    expected = collected.bytes_held
    for order in itertools.permutations([look, look, collected]):
        assert _native.merge(list(order)).bytes_held == expected
