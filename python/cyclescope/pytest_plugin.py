"""The pytest plugin: fails tests that leave a tensor in a reference cycle.

pytest loads it through its entry point. It is inactive unless enabled by ``--tensor-cycles``, by
the marker ``no_tensor_cycles``, or by the fixture ``tensor_cycles``.
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
    """Declare the options."""
    options.declare(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Read the options and register the check and the summary."""
    if pytest.version_tuple < (8, 0):
        # An old pytest is an error only if the plugin is used.
        if options.given(config):
            raise pytest.UsageError(
                "the options --tensor-cycles... require pytest 8 or later; "
                f"this is pytest {pytest.__version__}"
            )
        return
    config.addinivalue_line(
        "markers",
        "no_tensor_cycles(devices=..., ignore=[...]): fail the test if it leaves a tensor in a "
        "reference cycle, unless the leak's signature, pattern or library is ignored",
    )
    if OFF:
        return
    # Imported here to keep `pytest --help` fast.
    from cyclescope._pytest.checker import NAME, Checker
    from cyclescope._pytest.summary import Summary

    choices = options.read(config)
    checker = Checker(choices)
    config.pluginmanager.register(checker, NAME)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(choices, checker), "cyclescope-summary")


IS_OFF = f"cyclescope is off ({VARIABLE} is set): no test is checked"


def pytest_report_header() -> str | None:
    """Say so if cyclescope is off."""
    return IS_OFF if OFF else None


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say it where ``-q`` has left out the header, if tests were to be checked."""
    if OFF and config.get_verbosity() < 0 and options.given(config):
        terminalreporter.write_line(IS_OFF)


@pytest.fixture
def tensor_cycles(request: pytest.FixtureRequest) -> Iterator[TensorCycles]:
    """Collect on request and get a report of the tensors that only cycles kept alive.

    Leaks that the test has already collected through this fixture do not fail it.
    """
    from cyclescope._pytest.fixture import opened

    with opened(request) as cycles:
        yield cycles
