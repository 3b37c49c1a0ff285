"""What the pytest plugin writes, and what it must not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.nodes import SOURCE
from support.pytest_runs import PLUGIN

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("few_plugins")

LEAKS = f"import numpy, pytest\n{SOURCE}\ndef test_leaks():\n    Node()\n"
RESULTS = ("--tensor-cycles-sarif=a.sarif", "--tensor-cycles-json=a.json")
BASELINE = "--tensor-cycles-baseline=known.json"
UPDATE = "--tensor-cycles-update-baseline"


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    result = pytester.runpytest_subprocess(*PLUGIN, "--tensor-cycles=error", *arguments)
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    return result


def leaks_in(baseline: Path) -> list[str]:
    return list(json.loads(baseline.read_text(encoding="utf-8"))["leaks"].values())


CLEAN = "def test_clean():\n    pass\n"
BROKEN = "import nothing_there\n"
SKIPPED = "import pytest\n@pytest.mark.skip\ndef test_skipped():\n    pass\n"
INTERRUPTED = "def test_clean():\n    pass\ndef test_stops():\n    raise KeyboardInterrupt\n"


@pytest.mark.parametrize(
    ("source", "arguments", "why"),
    [
        (BROKEN, [], "no test was checked"),
        (BROKEN, ["-x"], "no test was checked"),
        (BROKEN, ["--continue-on-collection-errors"], "not all tests could be collected"),
        (LEAKS, ["--collect-only"], "no test was checked"),
        (LEAKS, ["-k", "nothing"], "no test was checked"),
        (SKIPPED, [], "no test was checked"),
        (INTERRUPTED, [], "the run was interrupted"),
        (CLEAN, ["--tensor-cycles=off"], "--tensor-cycles=off checks no test"),
        (CLEAN, ["-n1", "-k", "nothing"], "no test was checked"),
    ],
)
def test_no_file_says_that_there_are_no_leaks_where_that_is_not_known(
    pytester: pytest.Pytester, source: str, arguments: list[str], why: str
) -> None:
    """An empty SARIF file closes the alerts of code scanning."""
    pytester.makepyfile(test_it=source)
    if "--continue-on-collection-errors" in arguments:
        pytester.makepyfile(test_other=CLEAN)
    result = run(pytester, *RESULTS, BASELINE, UPDATE, *arguments)
    for name in ("a.json", "a.sarif", "known.json"):
        result.stdout.fnmatch_lines([f"*{name} not written: {why}"])
    assert not (pytester.path / "a.sarif").exists()
    assert not (pytester.path / "a.json").exists()
    assert not (pytester.path / "known.json").exists()


def test_nor_where_no_memory_could_be_looked_at(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    pytester.makepyfile(LEAKS)
    result = run(pytester, *RESULTS, "--tensor-cycles-devices=cuda:0")
    result.stdout.fnmatch_lines(["*a.sarif not written: no test was checked"])
    assert not (pytester.path / "a.sarif").exists()


@pytest.mark.parametrize(
    ("source", "options", "why"),
    [
        ("def test_fails(): assert 0\ndef test_ok(): ...", ["-x"], "the run ended early"),
        (
            "import pytest\ndef test_ok(): ...\ndef test_ends(): pytest.exit('done', returncode=0)",
            [],
            "the run ended early",
        ),
        (
            "import pytest\ndef test_ok(): ...\n"
            "@pytest.mark.no_tensor_cycles(devices='cuda')\ndef test_gpu(): ...",
            [],
            "not all tests could be checked",
        ),
        (
            "import os\ndef test_ok(): ...\ndef test_dies(): os._exit(1)",
            ["-n1"],
            "the run ended early",
        ),
    ],
    ids=["stopped", "exit", "no GPU", "crash"],
)
def test_no_file_says_that_there_is_nothing_where_not_all_is_known(
    pytester: pytest.Pytester, source: str, options: list[str], why: str
) -> None:
    pytester.makepyfile(source)
    result = run(pytester, "--tensor-cycles-devices=any", *RESULTS, *options)
    result.stdout.fnmatch_lines([f"*a.sarif not written: {why}"])
    assert not (pytester.path / "a.sarif").exists()


def test_the_leaks_of_an_interrupted_run_are_written(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(LEAKS + "\ndef test_stops():\n    raise KeyboardInterrupt\n")
    run(pytester, *RESULTS)
    (log,) = json.loads((pytester.path / "a.sarif").read_text(encoding="utf-8"))["runs"]
    assert len(log["results"]) == 1


@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_baseline_is_written(pytester: pytest.Pytester, content: str) -> None:
    pytester.makepyfile(LEAKS)
    file = pytester.path / "known.json"
    file.write_text(content)
    result = run(pytester, BASELINE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*known.json is not a baseline; create one with *"])
    run(pytester, BASELINE, UPDATE).assert_outcomes(passed=1)
    assert leaks_in(file) == ["Node.me → Node"]


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b"\xff\xfe", b"9" * 5000, b'{"schema": 1, "leaks": []}', b"[]", b"null"],
    ids=["deep", "no text", "long number", "no leaks", "list", "null"],
)
def test_what_is_no_baseline_is_said_and_kept(pytester: pytest.Pytester, content: bytes) -> None:
    pytester.makepyfile(LEAKS)
    file = pytester.path / "known.json"
    file.write_bytes(content)
    for arguments, way_out in (([], "create one with *"), ([UPDATE], "name another file, *")):
        result = run(pytester, BASELINE, *arguments)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"*known.json is not a baseline; {way_out}"])
    assert file.read_bytes() == content


def test_a_run_whose_baseline_cannot_be_written_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(LEAKS + "    import pathlib\n    pathlib.Path('known.json').mkdir()\n")
    result = run(pytester, BASELINE, UPDATE)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = result.stdout.str()
    assert f"baseline not written: {pytester.path / 'known.json'}: " in text
    assert "(in the baseline)" not in text
    assert ".part" not in text


def test_a_result_that_cannot_be_written_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(LEAKS)
    (pytester.path / "a.sarif").mkdir()
    result = run(pytester, *RESULTS)
    text = result.stdout.str()
    assert f"SARIF report not written: {pytester.path / 'a.sarif'}: " in text
    assert ".part" not in text


@pytest.mark.parametrize("missing", ["a.sarif", "a.json"])
def test_a_run_fails_without_a_file_that_was_asked_for(
    missing: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("def test_clean():\n    pass\n")
    (pytester.path / missing).mkdir()
    result = run(pytester, *RESULTS)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["The run fails, because a requested report could not be written."])


def test_one_file_cannot_have_two_formats(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=CLEAN)
    result = run(pytester, "--tensor-cycles-json=a.out", "--tensor-cycles-sarif=a.out")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "name the same file" in result.stderr.str()
