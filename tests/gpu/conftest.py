"""What the tests on a GPU share. `make test-gpu` runs them; nothing here is skipped but
what needs a second GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import common

Program = Callable[..., Any]


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave these files unread where nobody asked for them: they import torch and CuPy."""
    return True if "not gpu" in config.getoption("markexpr", "") else None


@pytest.fixture(autouse=True)
def gpu() -> None:
    """Fail, do not skip, on a machine where these tests prove nothing."""
    import torch

    assert torch.cuda.is_available(), "these tests need an NVIDIA GPU; leave them out: -m 'not gpu'"


@pytest.fixture(autouse=True)
def paused(gpu: None) -> Iterator[None]:
    with common.collector_paused():
        yield


@pytest.fixture
def program() -> Program:
    """Runs Python source in a fresh process and returns the JSON of the last line it printed."""

    def run(source: str, **environment: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(source)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    return run
