"""The fixtures of programs that run with the stand-in for the CUDA driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import support
from support.processes import python

Program: TypeAlias = Callable[..., Any]

STANDIN = Path(support.__path__[0]) / "standin"

PRELUDE = """
import gc, json, os, sys
gc.disable()
import cyclescope
from support.standin import fake_gpu
from support.standin.fake_gpu import Driver, Holder, array, buffers, mapped
"""


def compile_driver(target: Path, *options: str, soname: str = "libcuda.so.1") -> Path:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    assert compiler, "these tests need a C compiler: install one, or name it in the variable CC"
    source = STANDIN / "cuda_driver.c"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", f"-Wl,-soname,{soname}", *options]
    subprocess.run([*command, str(source), "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("driver") / "standin.so")


@pytest.fixture
def program(driver: Path) -> Program:
    """Runs a program; returns the JSON it printed last. Nothing may appear on standard error."""

    def run(source: str, *, library: Path = driver, **environment: str) -> Any:
        path = os.pathsep.join(filter(None, sys.path))
        done = python(
            *["-c", PRELUDE + textwrap.dedent(source), str(library)],
            # From 3.12 on, os.fork warns wherever there is a second thread, and the watch has one.
            env=os.environ
            | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore::DeprecationWarning"}
            | environment,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    return run
