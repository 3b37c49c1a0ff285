"""Leaks that are found while a library is being imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.processes import python

LEAKING = """
import gc, numpy
class A:
    def __init__(self):
        self.me, self.array = self, numpy.zeros(1 << 20)
A()
gc.collect()
"""
PROGRAM = """
import cyclescope
watch = cyclescope.warn_tensor_cycles(devices="any")
watch.flush(60)
import LEAKING
watch.flush(60)
exec(open(LEAKING.__file__).read())
"""


@pytest.mark.parametrize(
    ("folder", "module", "is_said"),
    [
        ("site-packages", "noisy", True),
        ("site-packages", "noisy.inner.leaking", True),
        ("mine", "noisy", False),
    ],
)
def test_the_import_is_named(tmp_path: Path, folder: str, module: str, is_said: bool) -> None:
    *packages, name = module.split(".")
    at = tmp_path / folder
    for package in packages:
        at /= package
        at.mkdir(parents=True)
        (at / "__init__.py").write_text(f"import {module}\n" if package == packages[0] else "")
    at.mkdir(parents=True, exist_ok=True)
    (at / f"{name}.py").write_text(LEAKING)
    told = python(
        "-c",
        PROGRAM.replace("LEAKING", module),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / folder), *sys.path])},
        check=True,
    ).stderr
    warnings = told.split(" held by ")[1:]
    assert len(warnings) == 2
    found = f"\n  Found during the import of {module.split('.')[0]}.\n"
    assert (found in warnings[0]) == is_said
    assert "during the import" not in warnings[1]
