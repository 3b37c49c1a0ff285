"""The command ``cyclescope``: help, completion, errors, ``explain``, ``demo`` and ``doctor``."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cyclescope
from cyclescope import _native
from cyclescope._cli import attach
from support.command_line import Command, program


def test_help_names_every_command(command: Command) -> None:
    text = command("--help").stdout
    for name in ("run", "report", "merge", "diff", "explain", "demo", "doctor"):
        assert f"\n    {name} " in text
        assert command(name, "--help").returncode == 0
    assert command("--version").stdout.startswith("cyclescope ")
    assert command("-V").stdout == command("--version").stdout
    assert command("help").stdout == text
    assert command("help", "run").stdout == command("run", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "a command is required: run, report"),
        (["walk"], "no command 'walk'; the commands are run, report"),
        (["reprot"], "no command 'reprot'; did you mean 'report'?"),
        (["fine.py"], "to run a program: cyclescope run fine.py"),
        (["--verison"], "unknown option --verison; did you mean '--version'?"),
        (["--fail-on-leak", "run", "fine.py"], "follow the command: cyclescope run --fail-on-leak"),
        (["--json", "report", "x.json"], "follow the command: cyclescope report --json"),
        (["-c", "pass"], "unknown option -c; options follow the command: cyclescope run -c"),
        (["run", "--fail-on-leaks", "fine.py"], "did you mean '--fail-on-leak'?"),
        (["run", "--report-dri", "x", "fine.py"], "did you mean '--report-dir'?"),
        (["report", "--ouput=x", "fine.py"], "unknown option --ouput; did you mean '--output'?"),
        (["run", "--min-bytes", "1MB", "x"], "'1MB' is not a number of bytes, such as 1048576"),
        (["doctor", "now"], "unexpected argument: now"),
        (["run", "fin.py"], "cannot run fin.py: No such file or directory; did you mean fine.py?"),
        (["run", "plain"], "the folder plain: it has no __main__.py; did you mean plain/only.py?"),
        (["run", "folder"], "it has no __main__.py; to run one of its modules: -m folder.MODULE"),
        (["run", "-c", "def (:"], "is not a Python program"),
        (["report", "fine.py", "--format=pdf"], "invalid choice: 'pdf'"),
        (["explain", "kept_with_grap"], "did you mean kept-with-graph"),
        (["explain", "Closure"], "'Closure': did you mean closure-captures-owner?"),
        (["explain", "hook"], "optimizer-hook-captures-owner or activations-kept-by-hook?"),
        (["explain", "zzz"], "unknown name 'zzz': `cyclescope explain` lists all"),
        (["run"], "SCRIPT"),
        (["run", ""], "the name of the program is empty"),
        (["run", "-m", ""], "the name of the module after -m is empty"),
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
        (["report", f"{'n' * 300}.json"], "File name too long"),
        (["fix", f"{'n' * 300}.py:1"], "File name too long"),
        (["fix", "none.py:1"], "cannot read none.py: No such file"),
        (["attach", "1", "--cycles", "--report-dir=x"], "--report-dir is the folder"),
        (["attach", "1", "--heap", "--devices=cuda"], "--devices is which memory to look for"),
        (["report", "fine.py"], "fine.py: this is not JSON"),
        (["report", "folder"], "no file matches folder"),
        (["merge", "fine.py"], "fine.py: this is not JSON"),
        (["report", "fine.png"], "fine.png: this is not text"),
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


def test_standard_input_is_read_once(command: Command) -> None:
    done = command("diff", "-", "-")
    assert done.returncode == 2
    assert "standard input can be read only once" in done.stderr
    done = command("run", "--devices", "any,bogus", "-c", "pass")
    assert done.returncode == 2
    assert '"bogus" is not a device' in done.stderr


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


def test_explain(command: Command) -> None:
    assert "closure-captures-owner" in command("explain").stdout
    assert command("explain", "closure-captures-owner").stdout.startswith("# ")
    known = command("explain", "torch-parametrized-class").stdout
    assert known.startswith("# A known leak of torch")
    assert "remove_parametrizations" in known
    assert max(map(len, known.splitlines())) <= 100
    assert "is the signature of a leak" in command("explain", "0123456789abcdef").stderr
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
    assert lines["ignore"] == "nothing (default)"
    assert lines["report_dir"] == "a temporary folder (default)"
    wrong = command("doctor", CYCLESCOPE_EVERY="often")
    assert wrong.returncode == 1
    assert "CYCLESCOPE_EVERY" in wrong.stdout
    unusable = command("doctor", CYCLESCOPE_REPORT_DIR=__file__, CYCLESCOPE_SIGNAL="KILL")
    assert unusable.returncode == 1
    assert "reports cannot be written there: Not a directory" in unusable.stdout
    assert "no  CYCLESCOPE_SIGNAL     signal must be one that is free" in unusable.stdout


@pytest.mark.parametrize(
    "option", ["--foo", "--html", "--watch", "--signal", "--every", "--no-gpu"]
)
def test_what_is_like_no_option_gets_no_suggestion(command: Command, option: str) -> None:
    done = command("run", option, "fine.py")
    assert done.returncode == 2
    assert f"unknown option {option}\n" in done.stderr


@pytest.mark.parametrize(
    ("devices", "is_there", "is_said"),
    [
        ("cuda", False, True),
        ("cuda", True, False),
        ("cuda,cpu", False, False),
        (None, False, False),
    ],
)
def test_attach_says_that_there_is_no_gpu_to_look_at(
    devices: str | None, is_there: bool, is_said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(_native, "cuda_driver_present", lambda: is_there)
    monkeypatch.setattr(attach, "tell", said.append)
    attach._tell_if_blind(argparse.Namespace(devices=devices))
    assert len(said) == is_said
