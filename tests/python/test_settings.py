"""Settings: arguments, then variables, then pyproject.toml; and what is wrong is named."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

import cyclescope
from cyclescope import _settings, settings
from support.nodes import Node
from support.processes import python


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own, in a folder below which the program runs."""
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("CYCLESCOPE_MIN_BYTES", raising=False)
    gc.collect()
    return folder.parent


def configure(project: Path, text: str) -> None:
    (project / "pyproject.toml").write_text(f"[tool.cyclescope]\n{text}\n", encoding="utf-8")
    _settings.forget()


def test_without_any_there_are_the_defaults() -> None:
    found = settings()
    assert found == cyclescope.Settings()
    assert found.origins == {}


def test_the_project_says_and_a_variable_says_otherwise(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(project, "devices = ['cpu', 'cuda:1']\nreport-dir = 'leaks'\nevery = 7\n")
    found = settings()
    assert found.devices == ("cpu", "cuda:1")
    assert found.report_dir == project / "leaks"
    assert found.every == 7
    assert str(project / "pyproject.toml") in found.origins["every"]

    monkeypatch.setenv("CYCLESCOPE_DEVICES", "any")
    monkeypatch.setenv("CYCLESCOPE_IGNORE", "torch, two-nodes")
    monkeypatch.setenv("CYCLESCOPE_EVERY", "20")
    monkeypatch.setenv("CYCLESCOPE_RECORD_HISTORY", "yes")
    found = settings()
    assert found.devices == ("any",)
    assert found.ignore == ("torch", "two-nodes")
    assert found.every == 20
    assert found.record_history
    assert found.report_dir == project / "leaks"
    assert found.origins["every"] == "CYCLESCOPE_EVERY"


def test_the_nearest_file_with_the_table_counts(project: Path) -> None:
    (project.parent / "pyproject.toml").write_text("[tool.cyclescope]\nevery = 3\n")
    (project / "pyproject.toml").write_text("[tool.other]\ncyclescope = 1\n")
    assert settings().every == 3
    configure(project, "every = 4")
    assert settings().every == 4
    assert settings(project.parent).every == 3


def test_a_folders_file_is_read_once_and_variables_count_as_they_are(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(project, "every = 3")
    assert settings().every == 3
    (project / "pyproject.toml").write_text("[tool.cyclescope]\nevery = 4\n", encoding="utf-8")
    assert settings().every == 3
    monkeypatch.setenv("CYCLESCOPE_EVERY", "5")
    assert settings().every == 5
    monkeypatch.delenv("CYCLESCOPE_EVERY")
    assert settings().every == 3
    monkeypatch.chdir(project.parent)
    assert settings().every == 100
    monkeypatch.chdir(project)
    _settings.forget()
    assert settings().every == 4


def test_a_folder_that_is_gone_has_no_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(FileNotFoundError):
        os.getcwd()
    assert settings() == cyclescope.Settings()
    monkeypatch.setenv("CYCLESCOPE_EVERY", "5")
    assert settings().every == 5


def test_a_file_without_the_table_is_not_even_parsed(project: Path) -> None:
    (project / "pyproject.toml").write_text("this is [not TOML\n")
    assert settings() == cyclescope.Settings()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("device = 'any'", "unknown setting 'device'; did you mean 'devices'"),
        ("colour = 'red'", "unknown setting 'colour'; the settings are devices, ignore"),
        ("devices = 'gpus'", 'devices in .*"gpus" is not a device'),
        ("devices = 3", "devices in .*must be a string"),
        ("ignore = 'torch'", r"ignore in .*such as \['torch'\]"),
        ("every = 0", "every in .*positive number of steps, not 0"),
        ("growth-every = 0", "growth-every in .*positive number of steps, not 0"),
        ("every = true", "every in .*not True"),
        ("record_history = 1", "record_history in .*true or false, not 1"),
        ("report_dir = ''", "report_dir in .*path of a folder"),
        ("devices = [", "is not valid TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(project: Path, text: str, sentence: str) -> None:
    configure(project, text)
    with pytest.raises(ValueError, match=sentence) as raised:
        settings()
    assert "pyproject.toml" in str(raised.value)


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        ("DEVICES", "gpus", "CYCLESCOPE_DEVICES: .*is not a device"),
        ("EVERY", "often", "CYCLESCOPE_EVERY: every must be a positive number of steps.*'often'"),
        ("EVERY", "-1", "CYCLESCOPE_EVERY: .*'-1'"),
        ("RECORD_HISTORY", "perhaps", "CYCLESCOPE_RECORD_HISTORY: .*true or false, not 'perhaps'"),
    ],
)
def test_what_is_wrong_in_a_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, sentence: str
) -> None:
    monkeypatch.setenv(f"CYCLESCOPE_{variable}", text)
    with pytest.raises(ValueError, match=sentence):
        settings()
    with pytest.raises(ValueError, match=sentence):
        cyclescope.warn_tensor_cycles()


def test_a_wrong_setting_is_wrong_if_cyclescope_is_off_too(tmp_path: Path) -> None:
    for options, environment in (["--devices", "gpus"], {}), ([], {"CYCLESCOPE_EVERY": "often"}):
        done = python(
            *("-m", "cyclescope", "run", *options, "-c", "print(1)"),
            env=os.environ | {"CYCLESCOPE_OFF": "1"} | environment,
            cwd=tmp_path,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "gpus" in done.stderr or "often" in done.stderr


def test_names_to_ignore_are_given_one_by_one() -> None:
    with pytest.raises(ValueError, match=r"did you mean \['torch', 'jax'\]"):
        cyclescope.warn_tensor_cycles(ignore=["torch jax"])


def test_an_unknown_variable_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_settings, "_said", set())
    monkeypatch.setenv("CYCLESCOPE_DEVICE", "any")
    settings()
    settings()
    (message,) = caplog.messages
    assert message == (
        "the environment variable CYCLESCOPE_DEVICE has no effect: "
        "did you mean 'CYCLESCOPE_DEVICES'?"
    )


def test_python_3_10_without_tomli_says_the_way_out(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(project, "every = 3")
    monkeypatch.setattr(sys, "version_info", (3, 10, 0, "final", 0))
    monkeypatch.setitem(sys.modules, "tomli", None)
    with pytest.raises(ValueError, match="pip install tomli, or set CYCLESCOPE_"):
        settings()


def test_the_functions_obey_and_arguments_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CYCLESCOPE_DEVICES", "cpu")
    monkeypatch.setenv("CYCLESCOPE_REPORT_DIR", str(tmp_path / "pages"))
    Node()
    assert len(cyclescope.find_tensor_cycles().leaks) == 1
    Node()
    assert not cyclescope.find_tensor_cycles(devices="cuda").leaks
    with cyclescope.warn_tensor_cycles() as watch:
        Node()
        gc.collect()
        assert watch.flush(60)
    assert [path.suffix for path in sorted((tmp_path / "pages").iterdir())] == [".html", ".json"]
    monkeypatch.setenv("CYCLESCOPE_IGNORE", "refers-to-itself")
    with cyclescope.forbid_tensor_cycles():
        Node()
    seen: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(seen.append):
        Node()
        gc.collect()
    assert not seen
