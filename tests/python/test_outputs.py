"""Standard streams that are closed, full, or have another encoding or no reader."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.nodes import SOURCE

LEAKY = f"""
import sys, time
import numpy
{SOURCE}
Node(2)
print("first", flush=True)
time.sleep(0.3)
sys.exit(int(sys.argv[1]))
"""

SHOWN = {
    "report": "report report.json",
    "JSON": "report report.json --json",
    "merge": "merge report.json",
    "diff": "diff report.json report.json",
    "explain": "explain",
    "a page of explain": "explain refers-to-itself",
    "doctor": "doctor --no-gpu",
    "fix": "fix report.json",
    "version": "--version",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "leaky.py").write_text(LEAKY, "utf-8")
    done = shell(folder, "run --devices any -o report.json leaky.py 0")
    assert done.returncode == 0, done.stderr
    return folder


def shell(
    folder: Path, arguments: str, rest: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """The command in a shell, and what is redirected there."""
    return subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m cyclescope {arguments} {rest}"],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder)} | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


STATUS = '; echo "status ${PIPESTATUS[0]}" >&2'


@pytest.mark.parametrize("name", SHOWN)
def test_an_output_that_cannot_be_written_is_an_error(folder: Path, name: str) -> None:
    for where, reason in {">&-": "it is closed", ">/dev/full": "No space left on device"}.items():
        done = shell(folder, SHOWN[name], where)
        assert done.returncode == 2
        expected = f"cyclescope: error: cannot write to standard output: {reason}\n"
        assert done.stderr == expected


@pytest.mark.parametrize("name", SHOWN)
def test_the_status_is_the_same_without_a_reader(folder: Path, name: str) -> None:
    status = shell(folder, SHOWN[name]).returncode
    done = shell(folder, SHOWN[name], "| true" + STATUS)
    assert done.stderr.splitlines()[-1] == f"status {status}"
    assert "rror" not in done.stderr


@pytest.mark.parametrize("name", SHOWN)
def test_what_an_encoding_lacks_is_escaped(folder: Path, name: str) -> None:
    plain = shell(folder, SHOWN[name])
    done = shell(folder, SHOWN[name], PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
    escaped = plain.stdout.encode("ascii", "backslashreplace").decode()
    if "--json" in SHOWN[name]:
        assert json.loads(done.stdout) == json.loads(plain.stdout)
    else:
        assert done.stdout == escaped


def test_a_closed_standard_input_is_said(folder: Path) -> None:
    for arguments in "run -", "report -":
        done = shell(folder, arguments, "<&-")
        assert done.returncode == 2
        assert "standard input: it is closed" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("options", ["--json", "--trace --fail-on-leak"])
def test_the_status_of_a_program_is_kept(folder: Path, status: int, options: str) -> None:
    """Whatever becomes of what is printed besides; and files are written."""
    ends = 1 if status == 0 and "fail" in options else status
    command = f"run --devices any -o out.json {options} leaky.py {status}"
    for rest in "| head -1", ">&-", "2>&- | cat", "| cat":
        # JSON that was asked for and has nowhere to go is an error, but not of the program.
        expected = 2 if (ends, options, rest) == (0, "--json", ">&-") else ends
        (folder / "out.json").unlink(missing_ok=True)
        # The program itself may print what is ASCII.
        done = shell(folder, command, rest + STATUS, PYTHONIOENCODING="ascii")
        assert f"status {expected}" in done.stderr.splitlines(), (rest, done.stderr)
        assert "Traceback" not in done.stderr
        assert (folder / "out.json").exists()


def test_nothing_for_standard_error_goes_to_standard_output(folder: Path) -> None:
    done = shell(folder, "run --devices any -c 'print(1)'", "2>&-")
    assert (done.returncode, done.stdout) == (0, "1\n")
    done = shell(folder, "report nowhere.json", "2>&-")
    assert (done.returncode, done.stdout) == (2, "")
