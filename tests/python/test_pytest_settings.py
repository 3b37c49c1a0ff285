"""The options and the configuration of the pytest plugin."""

from __future__ import annotations

from pathlib import Path

import pytest

from cyclescope import CycleReport
from support.pytest_runs import LEAKY, run, suite

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("few_plugins")


def test_the_configuration_sets_what_the_options_set(pytester: pytest.Pytester) -> None:
    suite(pytester)
    pytester.makeini(
        """
        [pytest]
        tensor_cycles = error
        tensor_cycles_ignore =
            refers-to-itself
        tensor_cycles_report_dir = pages
        """
    )
    run(pytester).assert_outcomes(passed=5, failed=1)
    pytester.makeini("[pytest]\ntensor_cycles = error\ntensor_cycles_report_dir = pages\n")
    run(pytester).assert_outcomes(passed=2, failed=4, errors=1)
    assert sorted(path.suffix for path in (pytester.path / "pages").iterdir()) == [".html"] * 3
    run(pytester, "--tensor-cycles=off").assert_outcomes(passed=5, failed=1)
    run(pytester, "--tensor-cycles-devices=cuda").assert_outcomes(passed=5, failed=1)


def test_settings_of_the_project_hold_here_too(pytester: pytest.Pytester) -> None:
    suite(pytester)
    pytester.makepyprojecttoml("[tool.cyclescope]\nignore = ['refers-to-itself']\n")
    run(pytester, "--tensor-cycles=error").assert_outcomes(passed=5, failed=1)


def test_a_list_in_the_configuration(pytester: pytest.Pytester) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\ntensor_cycles_devices = ["cpu"]\n')
    run(pytester).stdout.fnmatch_lines(["*1 distinct leak in 1 test*"])
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\ntensor_cycles_scope = ["whole"]\n')
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*tensor_cycles_scope is *whole*; it must be a string*"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tensor-cycles=errors"], "*invalid choice: 'errors'*"),
        (["--tensor-cycles-devices=gpus"], '*"gpus" is not a device*'),
        (["--tensor-cycles-baseline=none.json"], "*no baseline file *none.json; create one*"),
        (["--tensor-cycles-update-baseline"], "*needs a file*"),
        (["--tensor-cycles-baseline=test_suite.py"], "*test_suite.py is not a baseline*"),
        (["--tensor-cycles-baseline=."], "ERROR: cyclescope: /*: Is a directory"),
        (["--tensor-cycles-baseline="], "*--tensor-cycles-baseline is empty: give it a value*"),
        (["--tensor-cycles-sarif", ""], "*--tensor-cycles-sarif is empty: give it a value*"),
        (["--tensor-cycles-devices="], "*--tensor-cycles-devices is empty: give it a value*"),
        (["-o", "tensor_cycles=errors"], "*tensor_cycles is 'errors'; it can be off*"),
    ],
)
def test_what_is_set_wrongly_is_named(
    pytester: pytest.Pytester, arguments: list[str], sentence: str
) -> None:
    suite(pytester)
    result = run(pytester, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([sentence])


def test_a_misspelt_name_to_ignore_is_among_the_warnings(pytester: pytest.Pytester) -> None:
    suite(pytester, "def test(): pass")
    result = run(pytester, "--tensor-cycles-ignore=closure-capture-owner")
    result.assert_outcomes(passed=1, warnings=1)
    said = "*ignore names 'closure-capture-owner', *; did you mean 'closure-captures-owner'[?]"
    result.stdout.fnmatch_lines([said])


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_who_looks_at_gpus_where_there_are_none_is_told(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    arguments = ("--tensor-cycles=error", "--tensor-cycles-devices=cuda:0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = run(pytester, *workers, *arguments)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "1 test could not be checked: only GPU memory was requested, *devices=any*",
            "The run fails, because --tensor-cycles=error could not check all tests.",
        ]
    )
    result = run(pytester, *workers, "--tensor-cycles=report", "--tensor-cycles-devices=cuda")
    assert result.ret == pytest.ExitCode.OK
    suite(
        pytester,
        LEAKY
        + """
@pytest.mark.no_tensor_cycles(devices="cuda")
def test_leaks():
    Node()

def test_is_not_looked_at():
    pass
""",
    )
    result = run(pytester, *workers)
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["1 test could not be checked: *devices='any' in the marker,*"])


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_whose_mixin_looks_at_gpus_where_there_are_none_is_told(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    suite(
        pytester,
        """
import unittest
import cyclescope

class OfGpus(cyclescope.NoTensorCycles, unittest.TestCase):
    tensor_cycle_devices = "cuda"

    def test(self): ...

class OfAll(cyclescope.NoTensorCycles, unittest.TestCase):
    def test(self): ...
""",
    )
    result = run(pytester, *workers)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["1 test could not be checked: *tensor_cycle_devices = 'any' in *"])


@pytest.mark.parametrize("file", ["sarif", "json", "baseline"])
def test_who_asks_for_results_is_checked(pytester: pytest.Pytester, file: str) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    (pytester.path / "given").write_text('{"schema": 1, "leaks": {}}')
    result = run(pytester, f"--tensor-cycles-{file}=given")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*1 distinct leak in 1 test*"])
    result = run(pytester, f"--tensor-cycles-{file}=given", "--tensor-cycles=off")
    assert "distinct leak" not in result.stdout.str()


GIVEN = {
    "": "error",
    "-devices": "cpu",
    "-scope": "whole",
    "-ignore": "two-nodes",
    "-baseline": "known.json",
    "-update-baseline": "true",
    "-report-dir": "pages",
    "-json": "a.json",
    "-sarif": "a.sarif",
}


RESULTS = {"pages", "a.json", "a.sarif", "known.json"}


def written(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} & RESULTS


@pytest.mark.parametrize("configured", [False, True], ids=["option", "configuration"])
@pytest.mark.parametrize("name", ["-devices", "-ignore", "-report-dir", "-baseline"])
def test_an_option_is_no_reason_to_look_green(
    pytester: pytest.Pytester, name: str, configured: bool
) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    (pytester.path / "known.json").write_text('{"schema": 1, "leaks": {}}')
    if configured:
        pytester.makeini(f"[pytest]\ntensor_cycles{name.replace('-', '_')} = {GIVEN[name]}\n")
        result = run(pytester)
    else:
        result = run(pytester, f"--tensor-cycles{name}={GIVEN[name]}")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*1 distinct leak in 1 test*"])


def test_every_option_has_a_name_in_the_configuration(pytester: pytest.Pytester) -> None:
    help_text = run(pytester, "--help").stdout.str()
    options = {line.split("=")[0].split()[0] for line in help_text.splitlines() if "  --" in line}
    assert {f"--tensor-cycles{name}" for name in GIVEN} == {
        option for option in options if option.startswith("--tensor-cycles")
    }
    settings = [f"tensor_cycles{name.replace('-', '_')}" for name in GIVEN]
    for setting in settings:
        assert f"  {setting} (" in help_text

    lines = [f"{setting} = {GIVEN[name]}" for setting, name in zip(settings, GIVEN, strict=True)]
    pytester.makeini("\n".join(["[pytest]", *lines]))
    suite(pytester, LEAKY + "def test_leaks():\n    Node(), Other()\n")
    result = run(pytester, "--strict-config", "--tensor-cycles-ignore=closure-captures-owner")
    # With a baseline that is updated, none fails.
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*2 distinct leaks in 1 test*"])
    assert written(pytester.path) == RESULTS
    assert "Other.me" in (pytester.path / "known.json").read_text()
    result = run(pytester, "--tensor-cycles-ignore=refers-to-itself")
    result.assert_outcomes(passed=1)
    assert CycleReport.from_json((pytester.path / "a.json").read_text()).leaks == []


def test_a_configured_result_is_not_written_unchecked(pytester: pytest.Pytester) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    names = ["-json", "-sarif", "-update-baseline", "-baseline"]
    lines = [f"tensor_cycles{name.replace('-', '_')} = {GIVEN[name]}" for name in names]
    pytester.makeini("\n".join(["[pytest]", *lines]))
    off = run(pytester, "--tensor-cycles=off")
    off.assert_outcomes(passed=1)
    assert written(pytester.path) == set()
    off.stdout.fnmatch_lines(["*a.json not written: --tensor-cycles=off checks no test"])
