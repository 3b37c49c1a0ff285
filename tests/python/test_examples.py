"""The programs of ``examples/``: each does what it says.

That the trainer is fixed by following its output, ``test_documentation.py`` tests: it runs what
``docs/fix-a-trainer.md`` shows, and compares what each step prints.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.marks import needs_torch
from support.processes import python

yaml: Any = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

pytestmark = needs_torch


class Project:
    """A folder with a program, in which commands run as a user gives them."""

    def __init__(self, folder: Path, example: str) -> None:
        self.folder = folder
        self.program = folder / "train.py"
        shutil.copy(EXAMPLES / example, self.program)

    def shell(
        self, command: str, *, status: int = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line in which ``cyclescope`` and ``pytest`` are programs."""
        command = re.sub(r"(?<![\w-])(cyclescope|pytest)(?= )", f"{sys.executable} -m \\1", command)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CYCLESCOPE", "GITHUB"))}
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=kept | {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"} | environment,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )
        assert done.returncode == status, (command, done.stdout, done.stderr)
        return done

    def run(self) -> tuple[str, str]:
        """What the program prints, and what cyclescope says of it."""
        done = self.shell("cyclescope run --devices any --report-dir leaks train.py")
        return done.stdout, done.stderr


FIXES = {
    "callback": ("lambda loss: self.losses", "lambda loss, losses=self.losses: losses"),
    "retries": ("failure = error", "failure = error.with_traceback(None)"),
    "scheduler": ("/ self.warmup", "/ warmup"),
}


@pytest.mark.parametrize("left_out", FIXES)
def test_each_mistake_is_a_leak_by_itself(tmp_path: Path, left_out: str) -> None:
    project = Project(tmp_path, "trainer.py")
    text = project.program.read_text("utf-8")
    for name, (old, new) in FIXES.items():
        assert text.count(old) == 1
        text = text.replace(old, new) if name != left_out else text
    project.program.write_text(text, "utf-8")
    assert "1 leak, seen " in project.run()[1]


def test_the_notebook_finds_its_leak_and_ends_without(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "leak.ipynb", tmp_path)
    done = python(
        "-m", "cyclescope", "run", "--devices", "any", "leak.ipynb", cwd=tmp_path, check=True
    )
    check_notebook(done.stdout)


def test_the_notebook_runs_in_jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel")
    nbclient: Any = pytest.importorskip("nbclient")
    nbformat: Any = pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    notebook = nbformat.read(EXAMPLES / "leak.ipynb", as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3")
    client.execute(cwd=str(tmp_path))
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", [])]
    check_notebook("".join(each.get("text", "") for each in outputs))
    (page,) = [each["data"]["text/html"] for each in outputs if "data" in each]
    assert "<iframe" in page


def check_notebook(printed: str) -> None:
    first, advice, last = printed.strip().splitlines()
    assert "10 similar reference cycles" in first
    assert "Capture the values that the function needs, not `self`" in advice
    assert last == "0 leaks"


def steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load((EXAMPLES / "leaks.yml").read_text("utf-8"))
    found: list[dict[str, Any]] = workflow["jobs"]["leaks"]["steps"]
    return found


def test_the_workflow_has_the_steps_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    inputs = ("run", "uses")
    in_example = [step[name] for step in steps() for name in inputs if name in step]
    in_readme = [step[name] for step in yaml.safe_load(shown) for name in inputs if name in step]
    assert [each for each in in_example if each in in_readme] == in_readme


@pytest.mark.parametrize("leaks", [True, False])
def test_the_commands_of_the_workflow_tell_leaks(tmp_path: Path, leaks: bool) -> None:
    project = Project(tmp_path, "trainer.py" if leaks else "why_alive.py")
    tests = (EXAMPLES / "test_training.py").read_text("utf-8")
    if not leaks:
        tests = tests.replace("lambda: self.activations", "lambda it=self.activations: it")
    (tmp_path / "test_training.py").write_text(tests, "utf-8")
    commands = [step["run"] for step in steps() if "run" in step]
    assert len(commands) == 3
    printed = [
        project.shell(
            each, status=int(leaks), GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(tmp_path)
        ).stdout
        for each in commands[1:]
    ]
    (run,) = json.loads((tmp_path / "leaks.sarif").read_text("utf-8"))["runs"]
    assert len(run["results"]) == int(leaks)
    told = [re.findall(r"^::warning file=(\S+?),", each, re.MULTILINE) for each in printed]
    assert told == ([["test_training.py"], ["train.py"] * 3] if leaks else [[], []])
