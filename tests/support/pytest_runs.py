"""Runs of pytest with the plugin in processes of their own, and a suite that leaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.nodes import SOURCE

# As a module, so that these tests are about this package whatever else is installed.
PLUGIN = ("-p", "no:cyclescope", "-p", "cyclescope.pytest_plugin")

LEAKY = f"""
import numpy, pytest
{SOURCE}
class Other(Node):
    pass
"""

SUITE = (
    LEAKY
    + """
@pytest.fixture
def node():
    return Node()

def test_clean():
    pass

@pytest.mark.parametrize("number", [1, 2])
def test_leaks(number):
    Node()

def test_fixture_leaks(node):
    pass

def test_leaks_another():
    Other()

def test_fails_by_itself(node):
    Other()
    assert node is None
"""
)


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Runs pytest with the plugin and these arguments."""
    return pytester.runpytest_subprocess(*PLUGIN, *arguments)


def suite(pytester: pytest.Pytester, source: str = SUITE) -> Path:
    """Writes the file of tests that is run."""
    return pytester.makepyfile(test_suite=source)
