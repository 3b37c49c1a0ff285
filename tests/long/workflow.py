"""The README's steps for GitHub, run as a runner would run them, in an empty folder.

Needs the network and half a minute: ``make test-workflow``, which builds the wheel that stands in
for the package index. What only GitHub can do, the upload, is checked for what it is given.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WHEELS = ROOT / ".wheel"
UPLOAD = "github/codeql-action/upload-sarif@v4"
UPLOAD_INPUTS = {
    *("sarif_file", "checkout_path", "ref", "sha", "token", "matrix", "category"),
    "wait-for-processing",
}
"""Of the action's ``action.yml``."""

LEAKY = """\
import numpy

class Trainer:
    def __init__(self):
        self.activations = numpy.zeros(2**20, numpy.uint8)
        self.on_step = lambda: self.activations.sum()

def test_a_step():
    assert Trainer().on_step() == 0
"""
MENDED = LEAKY.replace("lambda: self.activations", "lambda a=self.activations: a")


def steps() -> list[dict[str, Any]]:
    (text,) = re.findall(
        r"^```yaml\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert text.count("\n") == 5
    found: list[dict[str, Any]] = yaml.safe_load(text)
    return found


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment with a checker of GitHub's workflows."""
    folder = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "check-jsonschema"], check=True)
    return folder / "bin"


def test_the_steps_are_as_github_documents_them(tools: Path, tmp_path: Path) -> None:
    before: list[dict[str, Any]] = [
        {"uses": "actions/checkout@v5"},
        {"uses": "actions/setup-python@v6", "with": {"python-version": "3.12"}},
    ]
    job: dict[str, Any] = {
        "runs-on": "ubuntu-latest",
        "permissions": {"contents": "read", "security-events": "write"},
        "steps": [*before, *steps()],
    }
    file = tmp_path / "workflow.yml"
    command: list[str | Path] = [tools / "check-jsonschema"]
    command += ["--builtin-schema", "vendor.github-workflows", file]
    file.write_text(yaml.safe_dump({"on": "push", "jobs": {"tests": job}}), encoding="utf-8")
    subprocess.run(command, check=True)
    # The checker knows a step that is none.
    job["steps"] = [*before, {"runs": "pytest"}]
    file.write_text(yaml.safe_dump({"on": "push", "jobs": {"tests": job}}), encoding="utf-8")
    assert subprocess.run(command, check=False, capture_output=True).returncode == 1


class Runner:
    """What GitHub's runner does with steps, in a project of its own with a fresh environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        environment = folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "CYCLESCOPE", "VIRTUAL_ENV", "PYTEST"))
        }
        self.environment = kept | {
            "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.folder),
            "PIP_FIND_LINKS": str(WHEELS),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        self.output: list[str] = []
        self.uploaded: list[dict[str, Any]] = []

    def run(self, job: list[dict[str, Any]]) -> bool:
        """Run a job; true if it passes."""
        self.output.clear()
        self.uploaded.clear()
        passes = True
        for step in job:
            if not passes and step.get("if") != "always()":
                continue
            if "run" in step:
                done = subprocess.run(
                    ["bash", "-e", "-c", step["run"]],
                    cwd=self.folder,
                    env=self.environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=600,
                    check=False,
                )
                self.output.append(done.stdout)
                passes &= done.returncode == 0
            else:
                assert step["uses"] == UPLOAD
                assert step["with"].keys() <= UPLOAD_INPUTS
                file = self.folder / step["with"]["sarif_file"]
                self.uploaded.append(json.loads(file.read_text(encoding="utf-8")))
        return passes


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    assert list(WHEELS.glob("cyclescope-*.whl")), "run `make wheel` first"
    runner = Runner(tmp_path_factory.mktemp("runner"))
    (runner.folder / "requirements.txt").write_text("numpy\npytest\n")
    return runner


@pytest.fixture
def training_tests(runner: Runner) -> Path:
    return runner.folder / "test_training.py"


def test_a_leak_fails_the_job_and_is_uploaded(runner: Runner, training_tests: Path) -> None:
    training_tests.write_text(LEAKY, encoding="utf-8")
    assert not runner.run(steps())
    installed, tested = runner.output
    assert re.search(r"Successfully installed .*\bcyclescope-", installed)
    line = next(i for i, text in enumerate(LEAKY.splitlines(), 1) if "lambda" in text)
    assert f"::warning file=test_training.py,line={line}," in tested
    assert "1 failed" in tested
    assert tested.count("LEAK 1 of 1") == 1
    ((result,),) = [[*run["results"]] for log in runner.uploaded for run in log["runs"]]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "test_training.py"
    assert place["region"] == {"startLine": line}


def test_without_leaks_the_job_passes_and_uploads_that(
    runner: Runner, training_tests: Path
) -> None:
    training_tests.write_text(MENDED, encoding="utf-8")
    assert runner.run(steps()), runner.output
    assert [run["results"] for log in runner.uploaded for run in log["runs"]] == [[]]


def test_other_failures_are_uploaded_too(runner: Runner, training_tests: Path) -> None:
    training_tests.write_text(f"{MENDED}\ndef test_wrong():\n    assert 0\n", encoding="utf-8")
    assert not runner.run(steps())
    assert len(runner.uploaded) == 1
