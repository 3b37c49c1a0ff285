"""Where ``cyclescope run`` writes its results, whatever the program does to its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import python

LEAK = """
import gc, os, sys
import numpy
class Node:
    def __init__(self):
        self.me, self.array = self, numpy.zeros(1 << 20, dtype=numpy.uint8)
Node()
gc.collect()
"""


def run(
    folder: Path, source: str, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    (folder / "leaky.py").write_text(LEAK + source)
    return python(
        *["-m", "cyclescope", "run", "--devices=any", *options, "leaky.py"],
        cwd=folder,
        env=os.environ | environment,
        timeout=120,
    )


def leaks_in(text: str) -> int:
    return len(json.loads(text)["leaks"])


def test_files_are_relative_to_the_folder_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    done = run(tmp_path, "os.chdir('job')", "-o", "leaks.json")
    assert done.returncode == 0, done.stderr
    assert leaks_in((tmp_path / "leaks.json").read_text()) == 1
    assert list((tmp_path / "job").iterdir()) == []


@pytest.mark.parametrize(
    "source",
    [
        "sys.stdout = open('metrics.csv', 'w')\nprint('step,loss')",
        "import builtins\nbuiltins.print = lambda *text, **more: None",
        "import builtins\nold = print\nbuiltins.print = lambda *text, **more: old('[0]', *text)",
    ],
)
def test_standard_output_is_that_of_the_command(tmp_path: Path, source: str) -> None:
    done = run(tmp_path, source, "--json")
    assert done.returncode == 0, done.stderr
    assert leaks_in(done.stdout) == 1
    done = run(tmp_path, source, GITHUB_ACTIONS="true")
    assert done.stdout.startswith("::warning file="), done.stdout
    if (tmp_path / "metrics.csv").exists():
        assert (tmp_path / "metrics.csv").read_text() == "step,loss\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError"])
def test_a_forked_child_writes_no_results(tmp_path: Path, end: str) -> None:
    source = f"""
child = os.fork()
if child == 0:
    {end or "pass"}
else:
    status = os.waitpid(child, 0)[1]
    print("child", os.waitstatus_to_exitcode(status))
"""
    done = run(tmp_path, source, "--fail-on-leak", "-o", "leaks.json", "-o", "leaks.sarif")
    status = {"": 0, "sys.exit(3)": 3, "raise ValueError": 1}[end]
    assert done.stdout == f"child {status}\n"
    assert done.returncode == 1
    assert done.stderr.count("no leaks") == 0, done.stderr
    assert leaks_in((tmp_path / "leaks.json").read_text()) == 1
    (sarif,) = json.loads((tmp_path / "leaks.sarif").read_text())["runs"]
    assert len(sarif["results"]) == 1


def test_a_leak_that_is_too_small_to_be_reported_does_not_fail_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, "", "--fail-on-leak", "--min-bytes", str(4 << 20))
    assert "no leaks except small ones" in done.stderr
    assert done.returncode == 0
    assert run(tmp_path, "", "--fail-on-leak", "--min-bytes", "1000").returncode == 1


def test_redacted_results_have_no_host(tmp_path: Path) -> None:
    run(tmp_path, "", "--redact", "--report-dir", "pages", "-o", "leaks.json", "-o", "leaks.txt")
    files = [tmp_path / "leaks.json", *(tmp_path / "pages").glob("*.json")]
    assert len(files) > 1
    for file in files:
        report = json.loads(file.read_text())
        hosts = [
            occurrence["host"] for leak in report["leaks"] for occurrence in leak["occurrences"]
        ]
        assert [*hosts, report["process"]["host"]] == [""] * (len(hosts) + 1)
    assert "host" not in (tmp_path / "leaks.txt").read_text()


def test_a_folder_may_have_reports_of_live_memory_too(tmp_path: Path) -> None:
    run(tmp_path, "import cyclescope\nopen('heap.json', 'w').write(cyclescope.heap().to_json())")
    run(tmp_path, "", "-o", "leaks.json")
    report = [sys.executable, "-m", "cyclescope", "report"]
    done = subprocess.run([*report, "."], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "left out: heap.json: this is a report of live memory" in done.stderr
    assert "LEAK 1 of 1" in done.stdout
    done = subprocess.run(
        [*report, "heap.json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "heap.json: this is a report of live memory, not of reference cycles" in done.stderr


BLIND = "import gc\ngc.callbacks.clear()\nNode()\ngc.collect()\n"


@pytest.mark.parametrize(("end", "why"), [("sys.exit(3)", "fails"), (BLIND, "unseen")])
def test_no_sarif_says_that_all_is_fixed_where_that_is_not_known(
    tmp_path: Path, end: str, why: str
) -> None:
    known = LEAK.replace("Node()\ngc", "gc")
    (tmp_path / "leaky.py").write_text(known + end)
    command = ["-m", "cyclescope", "run", "--devices=any", "--fail-on-leak", "-o", "leaks.sarif"]
    done = python(*command, "leaky.py", cwd=tmp_path, timeout=120)
    assert done.returncode == {"fails": 3, "unseen": 2}[why]
    assert "leaks.sarif not written" in done.stderr
    assert not (tmp_path / "leaks.sarif").exists()


def test_what_was_found_is_in_the_sarif_of_a_program_that_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "sys.exit(3)", "-o", "leaks.sarif")
    assert done.returncode == 3
    (results,) = (
        it["results"] for it in json.loads((tmp_path / "leaks.sarif").read_text())["runs"]
    )
    assert len(results) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a status has more than a byte on Windows")
@pytest.mark.parametrize("status", [256, 1 << 40])
def test_a_status_that_the_system_takes_for_0_is_0(tmp_path: Path, status: int) -> None:
    done = run(tmp_path, f"sys.exit({status})", "--fail-on-leak")
    assert done.returncode == 1


LATE = """
import gc, os, numpy, cyclescope

class Owner:
    def __init__(self):
        self.parts = {"planted": self, "array": numpy.zeros(1 << 20, dtype=numpy.uint8)}

def leak(count):
    for _ in range(count):
        Owner()
        gc.collect()
    watch.flush(60)

watch = cyclescope.warn_tensor_cycles(devices="any", report_dir="reports")
leak(2)
before = {name for name in os.listdir("reports")}
cyclescope.heap(redact=True)
print(watch.report, [tally.count for tally in watch.leaks])
leak(3)
watch.stop()
print(sum(tally.count for tally in watch.leaks), "planted" in str(watch.leaks))
for name in sorted(set(os.listdir("reports")) - before):
    text = open(f"reports/{name}").read()
    print(name.split(".")[-1], "planted" in text, '"host":""' in text)
"""


def test_what_was_told_before_redaction_is_in_no_later_report(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    done = python("late.py", cwd=tmp_path, timeout=120)
    found = ["None [2]", "5 False", "html False True", "json False True"]
    assert done.stdout.splitlines() == found, done.stderr
    told = done.stderr.split("MiB held by a reference cycle")
    assert ["planted" in it for it in told] == [False, True, False]
