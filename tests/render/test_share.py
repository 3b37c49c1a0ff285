"""What a report is shared as: Markdown, the trace on a terminal, the pages of the patterns."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cyclescope
from cyclescope import _native
from support.processes import python

pytestmark = pytest.mark.usefixtures("programs_without_torch")

FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = [name for name, _ in _native.patterns()]

PROGRAM = """
import sys
import common, cyclescope

with common.collector_paused():
    common.load(sys.argv[1]).leak("cpu")
    report = cyclescope.find_tensor_cycles(devices="any")
print(eval(sys.argv[2]))
"""


def environment(**changes: str) -> dict[str, str]:
    package = Path(cyclescope.__file__).parent.parent
    path = os.pathsep.join([str(package), str(FIXTURES)])
    return os.environ | {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"} | changes


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python(*arguments, env=environment(), encoding="utf-8", timeout=120)


def told(fixture: str, expression: str) -> str:
    done = command("-c", PROGRAM, fixture, expression)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("fixture", ["awaitable_leak", "closure_captures_owner", "parent_child"])
def test_two_processes_write_the_same_markdown(fixture: str) -> None:
    both = "report.to_markdown() + '\\0' + str(report.leaks[0].buffers[0].pointer)"
    markdown, _, pointer = told(fixture, both).partition("\0")
    assert markdown == told(fixture, "report.to_markdown() + '\\0'").partition("\0")[0]
    assert hex(int(pointer)) not in markdown
    assert str(FIXTURES) not in markdown
    heading, *_ = markdown.splitlines()
    assert heading.startswith("### ")
    assert heading.endswith(": 1.0 MiB on cpu")


def test_markdown_names_what_keeps_what_and_hides_the_index() -> None:
    markdown = told("closure_captures_owner", "report.to_markdown()")
    assert markdown.startswith("### closure `log` keeps `self`: 1.0 MiB")
    assert "↓ [x]" in markdown
    assert "[0]" not in markdown
    assert told("closure_captures_owner", "report.leaks[0].to_markdown()") == markdown


@pytest.mark.parametrize("fixture", ["two_nodes", "exception_on_object", "generator_on_owner"])
def test_the_first_three_lines_of_a_leak_name_the_line_to_change(fixture: str) -> None:
    trace = told(fixture, "report")
    first = trace[trace.index("LEAK 1") :].splitlines()[:3]
    assert re.search(rf"{fixture}\.py:[1-9]", first[1] + first[2]), first
    assert max(map(len, trace.splitlines())) <= 100
    assert "~~~ cut here" in trace


def test_no_line_is_long_whatever_the_names() -> None:
    name = "n" * 5000 + "\x1b[31m"
    report = json.loads(told("exception_in_local", "report.to_json()"))
    for leak in report["leaks"]:
        leak["advice"]["text"] = leak["summary"] = name
        for step in leak["cycle"]:
            step["label"] = step["edge"] = step["type_name"] = name
            step["location"] = {"file": name, "line": 1}
    text = cyclescope.CycleReport.from_json(json.dumps(report)).to_text(color=True)
    assert "\x1b[31m" not in text
    plain = re.sub("\x1b\\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= 100


def printed_on_a_terminal(**changes: str) -> str:
    """What a program prints whose output is a terminal."""
    ours, theirs = pty.openpty()
    try:
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "two_nodes", "report.to_text()"],
            env=environment(TERM="xterm") | changes,
            stdout=theirs,
        )
        os.close(theirs)
        output = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says so when the other side is closed.
                break
            if not part:
                break
            output += part
        assert program.wait(timeout=120) == 0
    finally:
        os.close(ours)
    return output.decode("utf-8")


def test_colour_is_for_terminals_that_want_it() -> None:
    assert "\x1b[" in printed_on_a_terminal(NO_COLOR="")
    assert "\x1b[" not in printed_on_a_terminal(NO_COLOR="1")
    assert "\x1b[" not in printed_on_a_terminal(NO_COLOR="", TERM="dumb")
    forced = told("two_nodes", "report.to_text(color=True) + '\\0' + report.to_text()")
    colored, _, piped = forced.partition("\0")
    assert "\x1b[" in colored
    assert "\x1b[" not in piped


@pytest.mark.parametrize("name", NAMES)
def test_each_pattern_is_explained(name: str) -> None:
    done = command("-m", "cyclescope", "explain", name)
    assert done.returncode == 0, done.stderr
    page = done.stdout
    assert page == cyclescope.explain(name)
    assert re.match(r"# \S.*\n\n\S", page)
    assert "**Why it leaks.**" in page
    assert re.search(r"^```python\n(.+\n)+?(.*\n)*?```$", page, re.MULTILINE)
    assert re.search(r"Use instead:|^Instead, ", page, re.MULTILINE)
    assert "//!" not in page


def test_without_a_name_all_patterns_are_listed() -> None:
    done = command("-m", "cyclescope", "explain")
    assert done.returncode == 0, done.stderr
    groups = [group.splitlines() for group in done.stdout.split("\n\n")]
    assert [head for head, *_ in groups] == [
        "Reference cycles:",
        "Memory that grows:",
        "Out of memory:",
        "Known leaks of libraries:",
    ]
    listed = [[line.split()[0] for line in lines] for _, *lines in groups]
    assert listed[0] == NAMES
    assert set(listed[3]) == {name for name, _ in _native.known_leaks()}
    assert len(set(listed[3])) == len(listed[3])
    assert all(line.startswith("  ") and len(line.split()) > 1 for _, *ls in groups for line in ls)
    for name in [name for names in listed for name in names]:
        assert cyclescope.explain(name).startswith("# ")


def test_an_unknown_pattern_is_an_error_that_names_the_nearest() -> None:
    done = command("-m", "cyclescope", "explain", "closure-capture-owner")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "did you mean closure-captures-owner" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(ValueError, match=r"unknown name 'zzzz': `cyclescope explain` lists all"):
        cyclescope.explain("zzzz")
