"""What ``import cyclescope`` costs a program that does no more with it, and the first use of it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import cyclescope
from support.nodes import SOURCE
from support.processes import python

FIRST_USE = (
    "atexit",
    "contextlib",
    "dataclasses",
    "functools",
    "gc",
    "logging",
    "pathlib",
    "signal",
    "threading",
    "time",
    "types",
    "typing",
    "weakref",
)
"""The modules of the standard library that the first use may bring, with what they bring."""


def modules(program: str) -> set[str]:
    """The modules of a process that has run a program, and nothing else before it."""
    done = python(
        "-c",
        f"{program}\nimport sys; print('\\n'.join(sys.modules))",
        env=os.environ | {"PYTHONPATH": str(Path(cyclescope.__path__[0]).parent)},
        check=True,
    )
    return set(done.stdout.split())


def test_the_import_brings_nothing_else() -> None:
    brought = modules("import cyclescope") - modules("")
    own = {"cyclescope", "cyclescope._find", "cyclescope._off", "cyclescope._system"}
    assert own <= brought <= {*own, "__future__", "gc"}


def test_the_first_use_brings_what_it_needs() -> None:
    brought = modules("import cyclescope; cyclescope.warn_tensor_cycles")
    others = brought - modules(f"import {', '.join(FIRST_USE)}, collections.abc")
    assert {name for name in others if name.partition(".")[0] != "cyclescope"} <= {"__future__"}


def test_all_that_is_promised_is_there_and_nothing_else() -> None:
    program = """
import cyclescope
from cyclescope import *
print([name for name in dir(cyclescope) if name not in globals()])
print(dir(cyclescope) == cyclescope.__all__, hasattr(cyclescope, "_no_such"))
try:
    cyclescope.no_such
except AttributeError as error:
    print(error)
"""
    done = python("-c", program)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "[]",
        "True False",
        "module 'cyclescope' has no attribute 'no_such'",
    ]


def test_the_version_is_that_of_the_crate() -> None:
    manifest = (Path(__file__).parents[2] / "Cargo.toml").read_text("utf-8")
    [version] = re.findall(r'^version = "(.+)"$', manifest, re.MULTILINE)
    assert cyclescope.__version__ == version
    done = python("-m", "cyclescope", "--version", check=True)
    assert done.stdout == f"cyclescope {version}\n"


@pytest.mark.parametrize("check", ["find_tensor_cycles", "assert_no_tensor_cycles"])
@pytest.mark.parametrize("configured", [False, True])
def test_the_first_use_does_not_collect_what_it_is_asked_for(
    tmp_path: Path, check: str, configured: bool
) -> None:
    if configured:
        (tmp_path / "pyproject.toml").write_text("[tool.cyclescope]\nevery = 3\n")
    program = f"""
import cyclescope, gc, json, numpy
{SOURCE}
gc.collect()
Node()
try:
    found = cyclescope.{check}(devices="any")
    leaks = [] if found is None else found.leaks
except AssertionError as error:
    leaks = error.report.leaks
print(json.dumps([len(leaks), gc.isenabled()]))
"""
    done = python("-c", program, cwd=tmp_path, check=True)
    assert json.loads(done.stdout) == [1, True]


def test_a_collector_that_is_off_stays_off() -> None:
    program = "import gc, cyclescope; gc.disable(); cyclescope.find_tensor_cycles(devices='any')"
    done = python("-c", f"{program}; print(gc.isenabled())", check=True)
    assert done.stdout == "False\n"
