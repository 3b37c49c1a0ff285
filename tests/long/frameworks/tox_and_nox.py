"""The pytest plugin in environments that tox and nox make, with the wheel of ``make wheel``.

``make test-frameworks`` installs both. Needs the network, for pytest and NumPy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WHEELS = ROOT / ".wheel"

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

TOX = """\
[tox]
env_list = tests
no_package = true

[testenv:tests]
deps =
    cyclescope[pytest]
    numpy
commands = pytest --tensor-cycles=error {posargs}
"""

NOX = """\
import nox

@nox.session
def tests(session):
    session.install("cyclescope[pytest]", "numpy")
    session.run("pytest", "--tensor-cycles=error", *session.posargs)
"""


@pytest.fixture(scope="module", params=["tox", "nox"])
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the configuration of one of them; the environment is made once."""
    assert list(WHEELS.glob("cyclescope-*.whl")), "run `make wheel` first"
    folder = tmp_path_factory.mktemp(request.param)
    name, text = {"tox": ("tox.ini", TOX), "nox": ("noxfile.py", NOX)}[request.param]
    (folder / name).write_text(text, "utf-8")
    return folder


def run(project: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests as a developer does."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "CYCLESCOPE", "VIRTUAL_ENV", "PYTEST", "TOX", "NOX"))
    }
    arguments = {
        "tox.ini": ["tox", "run", "-e", "tests"],
        "noxfile.py": ["nox", "--reuse-existing-virtualenvs", "--session", "tests"],
    }
    (command,) = [each for file, each in arguments.items() if (project / file).exists()]
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env=kept | {"PIP_FIND_LINKS": str(WHEELS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_leak_fails_the_environment(project: Path) -> None:
    (project / "test_training.py").write_text(LEAKY, "utf-8")
    done = run(project)
    assert done.returncode != 0
    assert "1 failed" in done.stdout, done.stdout
    assert "Trainer.on_step" in done.stdout


def test_without_a_leak_it_passes(project: Path) -> None:
    (project / "test_training.py").write_text(MENDED, "utf-8")
    done = run(project)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
