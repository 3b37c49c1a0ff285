"""The marker ``no_tensor_cycles`` and the fixture ``tensor_cycles`` of the pytest plugin."""

from __future__ import annotations

import pytest

from support.pytest_runs import LEAKY, run, suite

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("few_plugins")


def test_off_means_off_for_marked_tests_too(pytester: pytest.Pytester) -> None:
    suite(pytester, LEAKY + "@pytest.mark.no_tensor_cycles\ndef test_leaks():\n    Node()\n")
    run(pytester, "--tensor-cycles=off").assert_outcomes(passed=1)
    run(pytester).assert_outcomes(failed=1)
    run(pytester, "--tensor-cycles=report").assert_outcomes(failed=1)


def test_the_marker_says_devices_and_what_is_allowed(pytester: pytest.Pytester) -> None:
    suite(
        pytester,
        LEAKY
        + """
@pytest.mark.no_tensor_cycles(devices="cuda")
def test_gpus_only():
    Node()

@pytest.mark.no_tensor_cycles(ignore=["refers-to-itself"])
def test_allowed():
    Node()

@pytest.mark.no_tensor_cycles(ignore=["two-nodes"])
class TestGroup:
    def test_not_allowed(self):
        Node()

    @pytest.mark.no_tensor_cycles(ignore=["refers-to-itself"])
    def test_allowed(self):
        Node()
""",
    )
    result = run(pytester, "--strict-markers")
    result.assert_outcomes(passed=3, failed=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("'cuda'", "no_tensor_cycles takes devices=... and ignore=[[]...[]], not 'cuda'"),
        ("device='cuda'", "*not device; did you mean 'devices'?"),
        ("allow=['torch']", "*not allow; did you mean 'ignore'?"),
        ("devices='gpus'", '*"gpus" is not a device*'),
        ("ignore='torch'", "*such as [[]'torch'[]]*"),
    ],
)
def test_a_marker_that_is_wrong_says_so(
    pytester: pytest.Pytester, arguments: str, sentence: str
) -> None:
    suite(
        pytester, f"import pytest\n@pytest.mark.no_tensor_cycles({arguments})\ndef test(): pass\n"
    )
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{sentence}"])


def test_a_class_that_looks_checked_and_is_not_says_so(pytester: pytest.Pytester) -> None:
    suite(
        pytester,
        LEAKY
        + """
import cyclescope, unittest

class TestAlone(cyclescope.NoTensorCycles):
    def test_leaks(self):
        Node()

class TestChecked(cyclescope.NoTensorCycles, unittest.TestCase):
    def test_clean(self):
        pass
""",
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, errors=1)
    way_out = "*so its tests would not be checked; write class TestAlone(NoTensorCycles, TestCase)*"
    result.stdout.fnmatch_lines([way_out])


def test_the_fixture_collects_and_inspects(pytester: pytest.Pytester) -> None:
    suite(
        pytester,
        LEAKY
        + """
from cyclescope import TensorCycleError

def test_inspects(tensor_cycles):
    assert not tensor_cycles.collect().leaks
    tensor_cycles.check()
    Node()
    (leak,) = tensor_cycles.collect().leaks
    assert leak.bytes_held == 2**20
    Node()
    with pytest.raises(TensorCycleError):
        tensor_cycles.check()
    tensor_cycles.check()

def test_leaks_later(tensor_cycles):
    tensor_cycles.check()
    Node()
""",
    )
    run(pytester).assert_outcomes(passed=2)
    # What was inspected is not held against the test, and all else is.
    run(pytester, "--tensor-cycles=error").assert_outcomes(passed=1, failed=1)
