"""The commands that read saved reports: ``report``, ``diff`` and ``merge``."""

from __future__ import annotations

import json
import os
import pickle
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cyclescope
from cyclescope import CycleReport
from support.command_line import LEAKY, Command, report_of


def test_a_report_in_every_format(command: Command, tmp_path: Path) -> None:
    report_of(command, tmp_path)
    shown = command("report", "report.json")
    assert shown.returncode == 0
    assert "LEAK 1 of 1" in shown.stdout
    assert "\x1b[" not in shown.stdout
    begins = {
        "page.html": "<!DOCTYPE html>",
        "report2.json": '{"schema"',
        "trace.txt": "cyclescope",
        "issue.md": "",
        "drawing.svg": "<svg",
        "graph.dot": "digraph",
        "log.sarif": "{",
    }
    for name, begin in begins.items():
        done = command("report", "report.json", "-o", f"out/{name}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert begin in text[:200]
        assert "Node" in text
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(begins)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_report_that_windows_has_written(command: Command, tmp_path: Path, encoding: str) -> None:
    report_of(command, tmp_path)
    text = (tmp_path / "report.json").read_text(encoding="utf-8")
    (tmp_path / "other.json").write_text(text, encoding=encoding)
    shown = command("report", "other.json")
    assert shown.stderr == ""
    assert shown.stdout == command("report", "report.json").stdout


def test_color_is_for_terminals(command: Command, tmp_path: Path) -> None:
    report_of(command, tmp_path)
    ours, theirs = pty.openpty()
    unset = ("NO_COLOR", "FORCE_COLOR")
    plain = {key: value for key, value in os.environ.items() if key not in unset}
    for variables, colored in [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "", "NO_COLOR": ""}, True),
    ]:
        subprocess.run(
            [sys.executable, "-m", "cyclescope", "report", "report.json"],
            cwd=tmp_path,
            stdout=theirs,
            env=plain | {"TERM": "xterm"} | variables,
            check=True,
        )
        assert (b"\x1b[" in os.read(ours, 100_000)) is colored
    os.close(ours)
    os.close(theirs)
    for arguments in (["report", "report.json"], ["doctor", "--no-gpu"]):
        for value in ("1", ""):
            shown = command(*arguments, FORCE_COLOR=value, NO_COLOR="").stdout
            assert ("\x1b[" in shown) is bool(value)


def test_a_reader_that_has_seen_enough_is_no_error(command: Command, tmp_path: Path) -> None:
    report_of(command, tmp_path)
    shell = f"{sys.executable} -m cyclescope report report.json | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_a_report_against_an_earlier_one(command: Command, tmp_path: Path) -> None:
    report_of(command, tmp_path, LEAKY, "old")
    report_of(command, tmp_path, LEAKY + "Node(2)\n", "grown")
    report_of(command, tmp_path, LEAKY.replace("Node", "Other"), "other")
    grown = command("report", "grown.json", "--against", "old.json")
    assert grown.returncode == 0
    assert "0 new, 1 grown, 0 gone, 0 unchanged or smaller." in " ".join(grown.stdout.split())
    assert " · grown, was 1.0 MiB" in grown.stdout
    other = command("report", "other.json", "--against", "old.json")
    assert " · new\n" in other.stdout
    assert "GONE · 1.0 MiB held" in other.stdout
    assert "Node.me → Node" in other.stdout.split("GONE")[1]
    markdown = command("report", "other.json", "--against", "old.json", "--format=md").stdout
    assert "1 new, 0 grown, 1 gone" in markdown
    assert "- gone: `Node.me → Node`" in markdown
    command("report", "other.json", "--against", "old.json", "-o", "both.html")
    page = (tmp_path / "both.html").read_text(encoding="utf-8")
    assert "1 leak is gone" in page
    # What was compared comes back from the JSON.
    command("report", "other.json", "--against", "old.json", "-o", "both.json")
    assert command("report", "both.json").stdout == other.stdout
    missing = command("report", "other.json", "--against", "none.json")
    assert missing.returncode == 2
    assert "cannot read none.json" in missing.stderr


def test_diff_by_signature(command: Command, tmp_path: Path) -> None:
    other = LEAKY.replace("Node", "Other")
    report_of(command, tmp_path, LEAKY, "old")
    report_of(command, tmp_path, LEAKY + "Node(2)\n", "grown")
    report_of(command, tmp_path, other, "other")
    same = command("diff", "old.json", "old.json")
    assert (same.returncode, same.stdout) == (0, "0 new, 0 grown, 0 gone, 1 unchanged or smaller\n")
    grown = command("diff", "old.json", "grown.json")
    assert grown.returncode == 1
    assert "grown  " in grown.stdout
    assert "3.0 MiB, was 1.0 MiB" in grown.stdout
    smaller = command("diff", "grown.json", "old.json")
    assert smaller.returncode == 0
    changed = command("diff", "old.json", "other.json")
    assert changed.returncode == 1
    lines = changed.stdout.splitlines()
    assert lines[0].startswith("new    ")
    assert "Other.me → Other" in lines[0]
    assert lines[1].startswith("gone   ")
    assert lines[-1] == "1 new, 0 grown, 1 gone, 0 unchanged or smaller"


def test_a_leak_is_known_again_where_lines_have_moved(command: Command, tmp_path: Path) -> None:
    closure = LEAKY + "def make():\n    node = Node()\n    node.call = lambda: node\nmake()\n"
    report_of(command, tmp_path, closure, "old")
    report_of(command, tmp_path, "# A line.\n" + closure, "moved")
    said = command("diff", "old.json", "moved.json")
    assert (said.returncode, said.stdout) == (0, "0 new, 0 grown, 0 gone, 2 unchanged or smaller\n")
    compared = command("report", "moved.json", "--against", "old.json")
    assert "0 new, 0 grown, 0 gone, 2 unchanged or smaller." in " ".join(compared.stdout.split())


def of_rank(file: Path, rank: int, count: int) -> None:
    """Copies a report as if it were a rank's."""
    model = json.loads(file.read_text(encoding="utf-8"))
    model["process"]["rank"] = rank
    model["leaks"][0]["count"] = count
    model["leaks"][0]["bytes_held"] = count * 2**20
    target = file.parent / "ranks" / f"rank{rank}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(model), encoding="utf-8")


def test_merge_has_a_column_a_rank(command: Command, tmp_path: Path) -> None:
    file = report_of(command, tmp_path)
    for rank, count in [(10, 3), (0, 1), (2, 2)]:
        of_rank(file, rank, count)
    done = command("merge", "ranks/*.json")
    head, row, *_ = done.stdout.splitlines()
    assert head.split("  ")[1:][-1].strip() == "total"
    assert head.index("rank 0") < head.index("rank 2") < head.index("rank 10")
    assert row.split()[1:] == ["1.0", "2.0", "3.0", "6.0"]
    assert command("merge", "ranks").stdout == done.stdout

    assert command("merge", "ranks", "-o", "all.html").returncode == 0
    page = (tmp_path / "all.html").read_text(encoding="utf-8")
    (table,) = re.findall('<section class="sheet" id="ranks".*?</section>', page)
    heads = re.findall('<th [^>]*scope="col">([^<]*)</th>', table)
    assert heads == ["Leak", "All", "rank 0", "rank 2", "rank 10"]
    cells = re.findall("<td [^>]*>([^<]*)</td>", table)
    assert cells == ["6.0", "1.0", "2.0", "3.0"]
    assert page.index("rank 10") < page.index("<main>")
    assert command("merge", "ranks", "-o", "all.json").returncode == 0
    (leak,) = CycleReport.from_json((tmp_path / "all.json").read_text(encoding="utf-8")).leaks
    assert (leak.count, leak.bytes_held) == (6, 6 * 2**20)


def test_a_pipe_in_a_folder_is_not_waited_for(command: Command, tmp_path: Path) -> None:
    report_of(command, tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    done = command("report", ".")
    assert (done.returncode, "LEAK 1 of 1" in done.stdout) == (0, True), done.stderr


def test_a_report_can_be_pickled(command: Command, tmp_path: Path) -> None:
    report_of(command, tmp_path)
    report = CycleReport.from_json((tmp_path / "report.json").read_text("utf-8"))
    assert pickle.loads(pickle.dumps(report)).to_json() == report.to_json()


def test_changes_of_live_memory_are_left_out_of_a_folder(command: Command, tmp_path: Path) -> None:
    report_of(command, tmp_path)
    heap = cyclescope.heap()
    (tmp_path / "vm-1-diff.json").write_text(heap.diff(heap).to_json(), "utf-8")
    (tmp_path / "vm-1-top.json").write_text(heap.top().to_json(), "utf-8")
    done = command("report", ".")
    assert (done.returncode, "LEAK 1 of 1" in done.stdout) == (0, True), done.stderr


def test_a_leak_that_could_not_be_seen_is_not_just_gone(command: Command, tmp_path: Path) -> None:
    report_of(command, tmp_path, LEAKY, "seen")
    done = command("run", "--devices=any", "--min-bytes=100000000", "-o", "small.json", "leaky.py")
    assert done.returncode == 0, done.stderr
    said = command("diff", "seen.json", "small.json")
    assert said.stdout.splitlines()[-2].startswith("0 new, 0 grown, 1 gone")
    assert said.stdout.splitlines()[-1].startswith("of the new report: A small leak held 1.0 MiB")
    (note,) = json.loads(command("diff", "seen.json", "small.json", "--json").stdout)["notes"]
    assert note in said.stdout
    markdown = command("report", "small.json", "--format", "md").stdout
    assert markdown.startswith("No leaks were reported.\n")
    assert "A small leak held 1.0 MiB" in markdown
