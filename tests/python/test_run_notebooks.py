"""``cyclescope run`` runs a Jupyter notebook cell by cell, or says why it cannot."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from support.command_line import LEAKY, Command


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
    assert re.search(r"│ +self\.me.* = self", done.stdout), done.stdout

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
        "text": "is not a Jupyter notebook: it is not JSON",
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
