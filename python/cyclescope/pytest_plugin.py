"""The pytest plugin: tests after which no cycle may hold a tensor.

pytest finds it by its entry point. It does nothing until asked: by ``--tensor-cycles``, by the
marker ``no_tensor_cycles`` on a test, or by the fixture ``tensor_cycles``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cyclescope._off import OFF, VARIABLE
from cyclescope._pytest import options

if TYPE_CHECKING:
    from cyclescope._pytest.fixture import TensorCycles


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what can be set."""
    options.declare(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Read what is set, and have each test checked and the run summed up."""
    if pytest.version_tuple < (8, 0):
        # Whoever only has cyclescope installed is not to be troubled.
        if config.getoption("--tensor-cycles") or config.getini("tensor_cycles"):
            raise pytest.UsageError(
                f"--tensor-cycles needs pytest 8 or later, and this is {pytest.__version__}"
            )
        return
    config.addinivalue_line(
        "markers",
        "no_tensor_cycles(devices=..., allow=[...]): fail the test if a reference cycle keeps a "
        "tensor alive, unless its signature, pattern or library is allowed",
    )
    if OFF:
        return
    # Imported here so that nobody pays for it who only asks for the help.
    from cyclescope._pytest.checker import Checker
    from cyclescope._pytest.summary import Summary

    choices = options.read(config)
    config.pluginmanager.register(Checker(choices), "cyclescope-checker")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(choices), "cyclescope-summary")


def pytest_report_header() -> str | None:
    """Say that nothing is checked, where that is so."""
    return f"cyclescope: off ({VARIABLE} is set), no test is checked" if OFF else None


@pytest.fixture
def tensor_cycles(request: pytest.FixtureRequest) -> Iterator[TensorCycles]:
    """Collects when asked, and says which tensors only cycles kept alive.

    What the test has asked about is its own business, and not held against it.
    """
    from cyclescope._pytest.fixture import opened

    with opened(request) as cycles:
        yield cycles
