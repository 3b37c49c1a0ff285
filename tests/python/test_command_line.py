"""The command ``cyclescope``, in processes of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cyclescope
from cyclescope import CycleReport
from support import interrupts
from support.nodes import SOURCE

interrupts.hear()

Command = Callable[..., subprocess.CompletedProcess[str]]

LEAKY = f"""
import sys, numpy
{SOURCE}
Node()
print("arguments", sys.argv[1:])
"""


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs the command in a folder of its own."""

    def run(
        *arguments: str, input: str | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cyclescope", *arguments],
            cwd=tmp_path,
            input=input,
            env=os.environ | {"TMPDIR": str(tmp_path)} | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def program(folder: Path, source: str = LEAKY, name: str = "leaky.py") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    return file


def report_of(command: Command, folder: Path, source: str = LEAKY, name: str = "report") -> Path:
    program(folder, source)
    done = command("run", "--devices=any", f"--output={name}.json", "leaky.py")
    assert done.returncode == 0, done.stderr
    return folder / f"{name}.json"


def test_a_program_runs_unchanged_and_its_leaks_are_told(command: Command, tmp_path: Path) -> None:
    program(tmp_path)
    done = command("run", "--devices=any", "leaky.py", "--devices", "x", "-m")
    assert done.returncode == 0
    assert done.stdout == "arguments ['--devices', 'x', '-m']\n"
    assert "held by a reference cycle" in done.stderr
    assert "1 × Node.me → Node" in done.stderr


def test_without_a_driver_host_memory_is_watched(command: Command, tmp_path: Path) -> None:
    program(tmp_path, LEAKY + "import cyclescope._native as n\nprint(n.cuda_driver_present())\n")
    done = command("run", "leaky.py")
    if done.stdout.endswith("False\n"):
        assert "1 × Node.me → Node" in done.stderr


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("", 0),
        ("sys.exit(7)", 7),
        ("sys.exit()", 0),
        ("sys.exit('a sentence')", 1),
        ("raise ValueError('its own error')", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
    ],
)
def test_the_status_is_the_programs_own(
    command: Command, tmp_path: Path, end: str, status: int
) -> None:
    program(tmp_path, f"{LEAKY}{end}\n")
    done = command("run", "--devices=any", "leaky.py")
    assert done.returncode == status
    assert "1 × Node.me → Node" in done.stderr
    with_check = command("run", "--devices=any", "--fail-on-leak", "leaky.py")
    assert with_check.returncode == (status or 1)


def test_no_leak_is_no_failure(command: Command, tmp_path: Path) -> None:
    program(tmp_path, "print('clean')\n")
    outputs = ("-o", "leaks.sarif", "-o", "leaks.json")
    (tmp_path / "leaks.json").write_text("of an earlier run", encoding="utf-8")
    done = command("run", "--devices=any", "--fail-on-leak", "--trace", *outputs, "leaky.py")
    assert (done.returncode, done.stdout) == (0, "clean\n")
    assert done.stderr == "cyclescope: no leaks\n"
    # What comes next in a CI job finds that nothing was found.
    assert json.loads((tmp_path / "leaks.sarif").read_text())["runs"][0]["results"] == []
    assert CycleReport.from_json((tmp_path / "leaks.json").read_text()).leaks == []
    assert command("diff", "leaks.json", "leaks.json").returncode == 0


@pytest.mark.parametrize("after", ["", "gc.callbacks[:] = saved"])
def test_collections_that_were_not_seen_are_no_success(
    command: Command, tmp_path: Path, after: str
) -> None:
    clears = "import gc\nsaved = gc.callbacks[:]\ngc.callbacks.clear()\n"
    said = "cyclescope: 1 garbage collection was not seen, because another part of the program "
    program(tmp_path, f"import logging\nlogging.disable()\n{clears}gc.collect()\n{after}")
    for options, status in ([], 0), (["--fail-on-leak"], 2):
        done = command("run", "--devices=any", *options, "leaky.py")
        assert done.returncode == status
        assert done.stderr.startswith(said)
        assert done.stderr.count("\n") == 1
    # What is told at the end is all that there was.
    program(tmp_path, clears + after)
    assert command("run", "--devices=any", "leaky.py").stderr == "cyclescope: no leaks\n"


def test_what_cannot_be_written_keeps_nothing_else_from_being_told(
    command: Command, tmp_path: Path
) -> None:
    outputs = ("-o", "folder.json", "-o", "leaks.json")
    for status, expected in (0, 2), (3, 3):
        folder = "import os\nos.mkdir('folder.json')"
        program(tmp_path, f"{LEAKY}\n{folder}\nraise SystemExit({status})")
        done = command("run", "--devices=any", "--trace", *outputs, "leaky.py")
        assert done.returncode == expected
        assert "cyclescope run: error: cannot write folder.json: " in done.stderr
        assert "LEAK 1 of 1" in done.stdout
        assert len(CycleReport.from_json((tmp_path / "leaks.json").read_text()).leaks) == 1
        (tmp_path / "folder.json").rmdir()


def test_a_program_does_not_begin_if_its_results_cannot_be_written(
    command: Command, tmp_path: Path
) -> None:
    program(tmp_path, "print('begun')")
    (tmp_path / "folder.json").mkdir()
    for output, why in (
        ("folder.json", "Is a directory"),
        ("leaky.py/leaks.json", "Not a directory"),
        ("leaky.py/new/leaks.json", "Not a directory"),
    ):
        done = command("run", "-o", output, "leaky.py")
        assert done.returncode == 2
        assert done.stdout == ""
        assert f"cyclescope run: error: cannot write {output}: {why}" in done.stderr
    assert command("run", "-o", "new/folder/leaks.json", "leaky.py").returncode == 0
    assert (tmp_path / "new/folder/leaks.json").exists()


@pytest.mark.parametrize("before", [[], ["--devices", "cpu"], ["--report-dir=pages"]])
def test_the_module_and_the_code_may_follow_without_a_blank(
    command: Command, tmp_path: Path, before: list[str]
) -> None:
    program(tmp_path, "import sys; print(sys.argv[1:])", "module.py")
    assert command("run", *before, "-mmodule", "-mx", "-cy").stdout == "['-mx', '-cy']\n"
    assert command("run", *before, "-cprint(5)", "-m").stdout == "5\n"
    assert command("run", *before, "module.py", "-mx").stdout == "['-mx']\n"


LARGE = "--min-bytes=100000000"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--devices=cpu", LARGE], "no leaks on cpu except small ones: 1 held "),
        (["--devices=any", LARGE, "--ignore=refers-to-itself"], "no leaks (ignored: refers-to-its"),
        (["--devices=any"], ""),
    ],
)
def test_success_is_said_of_what_was_watched(
    command: Command, tmp_path: Path, arguments: list[str], said: str
) -> None:
    program(tmp_path)
    done = command("run", *arguments, "leaky.py")
    assert ("cyclescope: no leaks" in done.stderr) is bool(said)
    assert said in done.stderr


def test_ranks_do_not_overwrite_each_others_file(command: Command, tmp_path: Path) -> None:
    program(tmp_path)
    for rank in ("0", "1"):
        job = {"RANK": rank, "WORLD_SIZE": "2"}
        assert command("run", "--devices=any", "-o", "all.json", "leaky.py", **job).returncode == 0
    alone = {"RANK": "0", "WORLD_SIZE": "1"}
    assert command("run", "--devices=any", "-o", "one.json", "leaky.py", **alone).returncode == 0
    files = sorted(file.name for file in tmp_path.glob("*.json"))
    assert files == ["all-rank0.json", "all-rank1.json", "one.json"]
    assert "rank 0  rank 1" in command("merge", "all-*.json").stdout


def test_errors_of_the_program_look_as_without(command: Command, tmp_path: Path) -> None:
    program(tmp_path, "def f():\n    raise ValueError('its own error')\nf()\n")
    plain = subprocess.run(
        [sys.executable, "leaky.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    done = command("run", "--devices=any", "leaky.py")
    assert done.stderr == plain.stderr
    assert done.returncode == plain.returncode


SELF = """
import sys, os, pickle
from pathlib import Path
import __main__
class Thing: pass
assert pickle.loads(pickle.dumps(Thing())).__class__ is Thing
print(__name__, Path(__file__).name, __main__.__dict__ is globals(), sys.argv[1:])
print(os.path.basename(sys.path[0]), None if __spec__ is None else __spec__.name, __package__)
print("__cached__" in globals())
"""


UNNAMED = """
import sys
print(__name__, "__file__" in globals(), "__cached__" in globals(), __spec__, __package__)
print(__loader__, sys.argv, repr(sys.path[0]), sys.stdin.read())
def f(): raise ValueError("its own error")
if sys.argv[-1] == "fails": f()
"""


@pytest.mark.parametrize("arguments", [["-c", UNNAMED], ["-"]], ids=["-c", "-"])
@pytest.mark.parametrize("last", ["-b", "fails"])
def test_code_without_a_file_runs_as_python_runs_it(
    command: Command, tmp_path: Path, arguments: list[str], last: str
) -> None:
    given = [*arguments, "a", last]
    plain = subprocess.run(
        [sys.executable, *given],
        cwd=tmp_path,
        input=UNNAMED if arguments == ["-"] else "",
        capture_output=True,
        text=True,
        check=False,
    )
    done = command("run", "--devices=any", *given, input=UNNAMED if arguments == ["-"] else "")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout), done.stderr
    said = done.stderr.removesuffix("cyclescope: no leaks\n")
    assert (said == done.stderr) is (last == "fails")
    assert said.splitlines()[-1:] == plain.stderr.splitlines()[-1:]
    assert "cyclescope" not in said


@pytest.mark.parametrize("arguments", [["-c", LEAKY], ["-"]], ids=["-c", "-"])
def test_code_without_a_file_is_watched(
    command: Command, tmp_path: Path, arguments: list[str]
) -> None:
    done = command("run", "--devices=any", "-o", "-", *arguments, input=LEAKY)
    assert "1 × Node.me → Node" in done.stderr
    first, _, report = done.stdout.partition("\n")
    assert first == "arguments []"
    (leak,) = CycleReport.from_json(report).leaks
    assert leak.count == 1
    shown = command("report", "-", input=report)
    assert "LEAK 1 of 1" in shown.stdout
    markdown = command("report", "-", "--format", "md", input=report)
    assert markdown.stdout == leak.to_markdown() + "\n" or "Node" in markdown.stdout
    assert command("diff", "-", "-", input=report).returncode == 2
    assert "standard input: this is not JSON" in command("report", "-", input="x").stderr
    piped = command("merge", "-", "-o", "-", input=report)
    assert CycleReport.from_json(piped.stdout).leaks[0].signature == leak.signature
    command("report", "-", "-o", "page", "--format=html", input=report)
    assert (tmp_path / "page").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def notebook(file: Path, *cells: str, version: int = 4, language: str | None = None) -> None:
    content = {
        "nbformat": version,
        "metadata": {} if language is None else {"language_info": {"name": language}},
        "cells": [
            {"cell_type": "markdown", "source": "# A *title*"},
            *({"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells),
        ],
    }
    file.write_text(json.dumps(content), encoding="utf-8")


def test_a_notebook_is_run_cell_by_cell(command: Command, tmp_path: Path) -> None:
    cells = (LEAKY, "", "number = 20 % 3\nprint(number)\nnumber", "print(number)\nNode()")
    notebook(tmp_path / "train.ipynb", *cells)
    done = command("run", "--devices=any", "--trace", "train.ipynb", "a", "-b")
    assert (done.returncode, done.stdout.splitlines()[:3]) == (
        0,
        ["arguments ['a', '-b']", "2", "2"],
    ), done.stderr
    assert "2 × Node.me → Node" in done.stderr
    assert "train.ipynb cell 1:" in done.stdout

    notebook(tmp_path / "fails.ipynb", "def f(): raise ValueError('its own')", "f()")
    done = command("run", "--devices=any", "fails.ipynb")
    assert done.returncode == 1
    assert "fails.ipynb cell 2" in done.stderr
    assert done.stderr.endswith("ValueError: its own\n")
    assert "cyclescope" not in done.stderr

    awaits = ("import asyncio", "await asyncio.sleep(0)\nprint('done')")
    notebook(tmp_path / "awaits.ipynb", *awaits, language="python")
    done = command("run", "--devices=any", "awaits.ipynb")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_what_is_no_notebook_is_said(command: Command, tmp_path: Path) -> None:
    notebook(tmp_path / "old.ipynb", "1", version=3)
    notebook(tmp_path / "wrong.ipynb", "print(")
    notebook(tmp_path / "other.ipynb", "print(1)", language="R")
    (tmp_path / "text.ipynb").write_text("text", encoding="utf-8")
    (tmp_path / "list.ipynb").write_text("[]", encoding="utf-8")
    notebook(tmp_path / "magic.ipynb", "import sys", "%matplotlib inline\n!ls")
    # Whether IPython is installed or not: as if it were not.
    (tmp_path / "IPython.py").write_text("raise ImportError", encoding="utf-8")
    for name, sentence in {
        "old": "has notebook format 3, not 4; convert it: jupyter nbconvert",
        "wrong": "is not a Python program",
        "other": "other.ipynb is a notebook in R, not in Python",
        "text": "is not a Jupyter notebook",
        "list": "is not a Jupyter notebook",
        "magic": "has IPython commands (lines with % or !), which need IPython",
    }.items():
        done = command(
            "run", f"{name}.ipynb", PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
        )
        assert done.returncode == 2, name
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


def test_ipythons_commands_run_where_it_is_installed(command: Command, tmp_path: Path) -> None:
    """With a stand-in that has the parts of IPython that are used."""
    package = tmp_path / "IPython" / "core"
    package.mkdir(parents=True)
    (tmp_path / "IPython" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "interactiveshell.py").write_text(
        "class InteractiveShell:\n"
        "    instance = classmethod(lambda cls: cls())\n"
        "    def transform_cell(self, cell):\n"
        "        return cell.replace('%answer', 'get_ipython().answer()')\n"
        "    def answer(self): print('answer', self.user_ns['number'])\n",
        encoding="utf-8",
    )
    notebook(tmp_path / "magic.ipynb", "number = 42", "%answer")
    done = command(
        "run", "magic.ipynb", PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    )
    assert (done.returncode, done.stdout) == (0, "answer 42\n"), done.stderr


@pytest.mark.parametrize("arguments", [["leaky.py"], ["-m", "package"], ["-m", "package.module"]])
def test_the_program_cannot_tell(command: Command, tmp_path: Path, arguments: list[str]) -> None:
    program(tmp_path, SELF)
    program(tmp_path, "", "package/__init__.py")
    program(tmp_path, SELF, "package/__main__.py")
    program(tmp_path, SELF, "package/module.py")
    plain = subprocess.run(
        [sys.executable, *arguments, "a", "-b"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert plain.returncode == 0, plain.stderr
    done = command("run", "--devices=any", *arguments, "a", "-b")
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout


def test_what_threads_leak_after_the_end_counts(command: Command, tmp_path: Path) -> None:
    end = "import threading, time\n"
    end += "threading.Thread(target=lambda: (time.sleep(0.5), Node(2))).start()\n"
    program(tmp_path, LEAKY + end)
    done = command("run", "--devices=any", "leaky.py")
    assert "2 × Node.me → Node" in done.stderr
    assert "3.0 MiB in total" in done.stderr


def test_nothing_is_lost_on_ctrl_c(tmp_path: Path) -> None:
    program(tmp_path, LEAKY + "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    running = subprocess.Popen(
        [sys.executable, "-m", "cyclescope", "run", "--devices=any", "-o", "r.json", "leaky.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    while running.stdout.readline() != "ready\n":
        assert running.poll() is None
    time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert "1 × Node.me → Node" in errors
    (leak,) = CycleReport.from_json((tmp_path / "r.json").read_text(encoding="utf-8")).leaks
    assert leak.count == 1


def test_the_report_names_the_program(command: Command, tmp_path: Path) -> None:
    model = json.loads(report_of(command, tmp_path).read_text(encoding="utf-8"))
    assert model["process"]["program"] == "leaky.py"


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
    assert heads == ["Leak", "rank 0", "rank 2", "rank 10", "All"]
    cells = re.findall("<td [^>]*>([^<]*)</td>", table)
    assert cells == ["1.0", "2.0", "3.0", "6.0"]
    assert page.index("rank 10") < page.index("<main>")
    assert command("merge", "ranks", "-o", "all.json").returncode == 0
    (leak,) = CycleReport.from_json((tmp_path / "all.json").read_text(encoding="utf-8")).leaks
    assert (leak.count, leak.bytes_held) == (6, 6 * 2**20)


def test_explain(command: Command) -> None:
    assert "closure-captures-owner" in command("explain").stdout
    assert command("explain", "closure-captures-owner").stdout.startswith("# ")
    wrong = command("explain", "closure-capture-owner")
    assert wrong.returncode == 2
    assert "did you mean closure-captures-owner" in wrong.stderr


def test_explain_knows_every_name_of_growth_and_of_post_mortems(command: Command) -> None:
    listed = command("explain").stdout
    stub = Path(cyclescope.__path__[0], "_native.pyi").read_text(encoding="utf-8")
    for cls, name in [("Growth", "pattern"), ("PostMortem", "verdict")]:
        text = stub.split(f"\nclass {cls}:")[1].split(f"def {name}(self)")[1].split("@property")[0]
        names = re.findall("``([a-z-]+)``", text)
        assert len(names) >= 7
        for each in names:
            assert f"\n  {each} " in listed
            page = cyclescope.explain(each)
            assert page.startswith("# ")
            assert "**Why it " in page
            assert "Instead, " in page


def test_demo_leaks_and_says_so(command: Command, tmp_path: Path) -> None:
    done = command("demo", "--report-dir", "demo")
    assert done.returncode == 0, done.stderr
    assert "self.on_step = lambda" in done.stdout
    assert "LEAK 1 of 1 · 20.0 MiB" in done.stdout
    assert "5 × Trainer.on_step → <lambda>" in done.stderr
    assert {path.suffix for path in (tmp_path / "demo").iterdir()} == {".py", ".html", ".json"}


def test_doctor(command: Command, tmp_path: Path) -> None:
    done = command("doctor", CYCLESCOPE_EVERY="25")
    assert done.returncode == 0, done.stdout
    lines = {line[4:26].strip(): line[26:] for line in done.stdout.splitlines()}
    assert lines["host memory (NumPy)"] == "a test leak was found"
    assert lines["every"] == "25 (CYCLESCOPE_EVERY)"
    assert sys.version.split()[0] in lines["Python"]
    wrong = command("doctor", CYCLESCOPE_EVERY="often")
    assert wrong.returncode == 1
    assert "CYCLESCOPE_EVERY" in wrong.stdout
    unusable = command("doctor", CYCLESCOPE_REPORT_DIR=__file__, CYCLESCOPE_SIGNAL="KILL")
    assert unusable.returncode == 1
    assert "reports cannot be written there: Not a directory" in unusable.stdout
    assert "no  CYCLESCOPE_SIGNAL     signal must be one that is free" in unusable.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "a command is required: run, report"),
        (["walk"], "no command 'walk'; the commands are run, report"),
        (["reprot"], "no command 'reprot'; did you mean 'report'?"),
        (["fine.py"], "to run a program: cyclescope run fine.py"),
        (["--verison"], "unknown option --verison; did you mean '--version'?"),
        (["run", "--fail-on-leaks", "fine.py"], "did you mean '--fail-on-leak'?"),
        (["run", "--report-dri", "x", "fine.py"], "did you mean '--report-dir'?"),
        (["report", "--ouput=x", "fine.py"], "unknown option --ouput; did you mean '--output'?"),
        (["doctor", "now"], "unexpected argument: now"),
        (["run", "fin.py"], "cannot run fin.py: No such file or directory; did you mean fine.py?"),
        (["run", "plain"], "the folder plain: it has no __main__.py; did you mean plain/only.py?"),
        (["run", "folder"], "it has no __main__.py; to run one of its modules: -m folder.MODULE"),
        (["run", "-c", "def (:"], "is not a Python program"),
        (["report", "fine.py", "--format=pdf"], "invalid choice: 'pdf'"),
        (["explain", "kept_with_grap"], "did you mean kept-with-graph"),
        (["explain", "zzz"], "unknown name 'zzz': `cyclescope explain` lists all"),
        (["run"], "SCRIPT"),
        (["run", "none.py"], "cannot run none.py: No such file"),
        (["run", "none"], "to run a module, use -m"),
        (["run", "-m", "no.such"], "no.such"),
        (["run", "-m", "folder"], "without a __main__"),
        (["run", "broken.py"], "broken.py is not a Python program"),
        (["run", "--devices=gpus", "fine.py"], "is not a device"),
        (["run", "-o", "leaks.pdf", "fine.py"], "the extension must be .html, .json"),
        (["run", "--report-dir=fine.py", "fine.py"], "fine.py: report_dir is not writable"),
        (["report", "none.json"], "cannot read none.json: No such file"),
        (["report", "none*.json"], "no file matches none*.json"),
        (["report", "fine.py"], "fine.py: this is not JSON"),
        (["report", "folder"], "no file matches folder"),
        (["merge", "fine.py"], "fine.py: this is not JSON"),
        (["report", "fine.png"], "fine.png: this is no text"),
        (["report", "list.json"], "list.json: this is JSON, but not a cyclescope report: pass a"),
        (["diff", "none.json", "none.json"], "cannot read none.json"),
    ],
)
def test_what_cannot_be_is_said(
    command: Command, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    program(tmp_path, "print('never')\n", "fine.py")
    program(tmp_path, "def (:\n", "broken.py")
    program(tmp_path, "", "folder/__init__.py")
    program(tmp_path, "", "plain/only.py")
    program(tmp_path, "[1]", "list.json")
    (tmp_path / "fine.png").write_bytes(b"\x89PNG")
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_every_command(command: Command) -> None:
    text = command("--help").stdout
    for name in ("run", "report", "merge", "diff", "explain", "demo", "doctor"):
        assert f"\n    {name} " in text
        assert command(name, "--help").returncode == 0
    assert command("--version").stdout.startswith("cyclescope ")
    assert command("-V").stdout == command("--version").stdout
    assert command("help").stdout == text
    assert command("help", "run").stdout == command("run", "--help").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(command: Command, tmp_path: Path, shell: str) -> None:
    done = command("completion", shell)
    assert done.returncode == 0, done.stderr
    for word in ("report", "--fail-on-leak", "--no-gpu"):
        assert word in done.stdout
    if shell == "bash":
        (tmp_path / "completion").write_text(done.stdout, encoding="utf-8")
        program(tmp_path, name="program.py")
        completed = {
            ("run", "--fail"): "--fail-on-leak",
            ("run", "pro"): "program.py",
            ("report", "-o", "pro"): "program.py",
            ("explain", "closure-cap"): "closure-captures-owner",
        }
        for words, whole in completed.items():
            asks = (
                f". ./completion; COMP_WORDS=(cyclescope {' '.join(words)}); "
                f"COMP_CWORD={len(words)}; "
                f'_shtab_cyclescope cyclescope {words[-1]} {words[-2]}; echo "${{COMPREPLY[@]}}"'
            )
            said = subprocess.run(
                ["bash", "-c", asks], cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert said.stdout == f"{whole}\n", said.stderr
    else:
        assert "_files" in done.stdout
    (tmp_path / "shtab.py").write_text("raise ImportError", encoding="utf-8")
    without = command(
        "completion", shell, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    )
    assert without.returncode == 2
    assert "pip install 'cyclescope[completion]'" in without.stderr


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


def test_processes_that_the_program_spawns_find_it(command: Command, tmp_path: Path) -> None:
    program(
        tmp_path,
        """
        import multiprocessing

        def double(number):
            return 2 * number

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
        """,
    )
    done = command("run", "--devices=any", "leaky.py")
    assert (done.returncode, done.stdout) == (0, "[2, 4]\n"), done.stderr


CALLS = """
import cyclescope, sys
watch = cyclescope.warn_tensor_cycles({arguments})
Node()
with cyclescope.warn_tensor_cycles({arguments}):
    Node(2)
watch.stop()
class Late(Node): pass
Late()
"""


@pytest.mark.parametrize("arguments", ["", "devices='any'", "report_dir='own'", "min_bytes=0"])
def test_a_program_that_warns_itself_is_told_each_leak_once(
    command: Command, tmp_path: Path, arguments: str
) -> None:
    program(tmp_path, LEAKY + CALLS.format(arguments=arguments))
    done = command("run", "--devices=any", "-o", "r.json", "leaky.py")
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stderr.split())
    assert words.count("by the cycle Node.me → Node.") == 1
    assert words.count("by the cycle Late.me → Late.") == 1
    assert done.stderr.count("2 leaks, seen ") == 1
    assert "no CUDA driver" not in done.stderr
    found = CycleReport.from_json((tmp_path / "r.json").read_text(encoding="utf-8")).leaks
    assert [leak.count for leak in found] == [3, 1]
    assert "called again" not in done.stderr


def test_the_command_line_comes_first(command: Command, tmp_path: Path) -> None:
    asks = "devices='cuda', report_dir='own', ignore=['closure-captures-owner'], min_bytes=0"
    closure = "class Other(Node):\n    def __init__(self):\n        super().__init__()\n"
    closure += "        self.me = lambda: self\nOther()\n"
    program(tmp_path, LEAKY + CALLS.format(arguments=asks) + closure)
    options = ("--devices=any", "--report-dir=given", "--fail-on-leak")
    done = command("run", *options, "leaky.py", CYCLESCOPE_MIN_BYTES="")
    assert done.returncode == 1
    words = " ".join(done.stderr.split())
    assert "`cyclescope run` gives --devices and --report-dir, which apply" in words
    assert words.count("by the cycle Node.me → Node.") == 1
    assert list((tmp_path / "given").glob("*.html"))
    assert not (tmp_path / "own").exists()
    program(
        tmp_path,
        LEAKY + "import cyclescope\n" + "cyclescope.warn_tensor_cycles("
        "ignore=['refers-to-itself'])\nclass Other(Node): pass\nOther()\n",
    )
    done = command("run", "--devices=any", "-o", "r.json", "leaky.py")
    found = CycleReport.from_json((tmp_path / "r.json").read_text(encoding="utf-8")).leaks
    assert found == []


def test_standard_input_is_read_once(command: Command) -> None:
    done = command("diff", "-", "-")
    assert done.returncode == 2
    assert "standard input can be read only once" in done.stderr
    done = command("run", "--devices", "any,bogus", "-c", "pass")
    assert done.returncode == 2
    assert '"bogus" is not a device' in done.stderr
