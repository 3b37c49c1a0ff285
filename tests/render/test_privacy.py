"""Does what the program's data is stay out of a report made with ``redact=True``?

Secrets are planted wherever a report could find some, and looked for in everything that is
written. Once asked for, ``redact`` holds for the process, so each test has a process of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.planted import SECRET, run
from support.processes import python

FIND = """
for leak in LEAKS:
    leak()
    report = cyclescope.find_tensor_cycles(devices="any", redact=REDACT)
    assert report.leaks, leak
    write(leak.__name__, report)
    assert all(step.location is None or os.sep not in step.location for one in report.leaks
               for step in one.cycle) or not REDACT
print(json.dumps(sorted(name for name, text in written.items() if SECRET in text)))
"""


def test_no_rendering_has_a_secret(tmp_path: Path) -> None:
    said = run(FIND.replace("REDACT", "True"), tmp_path, SECRET)
    assert said.splitlines()[-1] == "[]"


def test_the_secrets_would_be_found(tmp_path: Path) -> None:
    """The test above can fail: without ``redact`` the keys and the folder are there."""
    said = run(FIND.replace("REDACT", "False"), tmp_path, SECRET)
    assert said.splitlines()[-1].count("in_") == 10


def test_values_are_not_read_in_any_case(tmp_path: Path) -> None:
    """By default keys and folders are shown, as they say where to look; values are not."""
    source = """
in_values()
in_closure()
in_thread()
report = cyclescope.find_tensor_cycles(devices="any")
assert report.bytes_held == 3 * 2**20
write("all", report)
known = ["name " + SECRET, "…e " + SECRET]
print(written["all"].count(SECRET) - sum(written["all"].count(name) for name in known))
"""
    assert run(source, tmp_path, SECRET, home_name="home").splitlines()[-1] == "0"


WATCH = """
watch = cyclescope.warn_tensor_cycles(devices="any", report_dir="pages", redact=REDACT)
told = []
other = cyclescope.observe_tensor_cycles(told.append, devices="any")
for leak in LEAKS:
    leak()
    gc.collect()
assert watch.flush(60)
for report in told:
    write("told", report)
    assert SECRET not in written["told"], report
write("watch", watch.report)
assert SECRET not in written["watch"]
assert len(watch.leaks) == 12
print([tally.summary for tally in watch.leaks])
"""


@pytest.mark.parametrize("how", ["argument", "variable", "file", "before a fork"])
def test_the_log_and_the_files_of_a_watch(tmp_path: Path, how: str) -> None:
    source = WATCH.replace("REDACT", str(how == "argument"))
    environment = {}
    if how == "variable":
        environment["CYCLESCOPE_REDACT"] = "1"
    elif how == "file":
        (tmp_path / "pyproject.toml").write_text("[tool.cyclescope]\nredact = true\n")
    elif how == "before a fork":
        if not hasattr(os, "fork"):
            pytest.skip("this system has no fork")
        source = (
            'cyclescope.find_tensor_cycles(devices="any", redact=True)\n'
            "if (child := os.fork()):\n"
            "    sys.exit(os.waitpid(child, 0)[1] != 0)\n" + source
        )
    said = run(source, tmp_path, SECRET, **environment)
    assert SECRET not in said
    pages = list((tmp_path / "pages").iterdir())
    assert len(pages) == 10 + 1
    for page in pages:
        assert SECRET not in page.name
        assert SECRET not in page.read_text(encoding="utf-8"), page
        assert os.uname().nodename not in page.name
    # It says so, and what is left is of use.
    (data,) = (page for page in pages if page.suffix == ".json")
    assert "redact=True" in data.read_text(encoding="utf-8")
    assert "Node.me → Node" in said
    assert "Node.table" in said
    assert "train.py" in said


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    source = """
try:
    cyclescope.find_tensor_cycles(devices="any")
except ValueError as error:
    print(error)
"""
    said = run(source, tmp_path, SECRET, CYCLESCOPE_REDACT="maybe")
    assert "CYCLESCOPE_REDACT: redact must be true or false, not 'maybe'" in said


SUITE = """
import os, numpy

class Node:
    def __init__(self):
        self.array = numpy.zeros(2**17)
        self.table = {os.environ["PLANTED"]: [self]}

def test_leaks():
    Node()
    setattr(node := Node(), "for " + os.environ["PLANTED"], node)
    del node.table
"""


@pytest.mark.parametrize("redact", [True, False])
def test_the_pytest_plugin(tmp_path: Path, redact: bool) -> None:
    """All that a run of pytest prints and writes; its own first lines name the folder."""
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    arguments = ["-p", "no:cyclescope", "-p", "cyclescope.pytest_plugin", "--tensor-cycles=error"]
    for kind in ("json", "sarif"):
        arguments.append(f"--tensor-cycles-{kind}=../leaks.{kind}")
    done = python(
        *["-m", "pytest", *arguments, "--tensor-cycles-report-dir=../pages"],
        cwd=folder,
        env={**os.environ, "PLANTED": SECRET, "CYCLESCOPE_REDACT": "1" if redact else "0"},
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "tensors were kept alive by reference cycles" in done.stdout
    files = [*(tmp_path / "pages").iterdir(), *tmp_path.glob("leaks.*")]
    assert {file.suffix for file in files} == {".html", ".json", ".sarif"}
    written = "".join(file.read_text(encoding="utf-8") for file in files)
    assert (SECRET in done.stdout) is not redact
    assert (SECRET in written) is not redact
    assert (str(folder) in written) is not redact
    assert "test_suite.py" in written
