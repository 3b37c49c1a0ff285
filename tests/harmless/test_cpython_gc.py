"""CPython's own tests of its collector, run under the always-on watch."""

from __future__ import annotations

import importlib.util
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from support.processes import python

SITE = """
import atexit, gc, os

import numpy
import cyclescope

reports = []
watch = cyclescope.observe_tensor_cycles(reports.append, devices="any")


def prove_that_it_watched():
    ring = [numpy.zeros(8)]
    ring.append(ring)
    del ring
    gc.collect()
    watch.flush()
    with open(os.environ["PROOF"], "w") as proof:
        proof.write(f"{len(reports)} reports, {type(gc.callbacks[0]).__name__}")


# Called before what cyclescope has registered.
atexit.register(prove_that_it_watched)
"""


def outcomes(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """How each test of ``test_gc`` ended."""
    folder.mkdir()
    results = folder / "results.xml"
    done = python(
        *["-m", "test", "--junit-xml", str(results), "test_gc"],
        cwd=folder,
        env=os.environ | environment,
        timeout=280,
    )
    assert results.exists(), f"test_gc did not run:\n{done.stdout}\n{done.stderr}"
    return {
        str(case.get("name")): case[0].tag if len(case) else "passed"
        for case in ElementTree.parse(results).iter("testcase")
    }


def test_cpythons_own_tests_of_its_collector(tmp_path: Path) -> None:
    if importlib.util.find_spec("test.test_gc") is None:
        pytest.skip("this interpreter comes without test.test_gc (Debian leaves it out): not run")
    bare = outcomes(tmp_path / "bare", {})

    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    proof = tmp_path / "proof"
    watched = outcomes(tmp_path / "watched", {"PYTHONPATH": path, "PROOF": str(proof)})

    assert len(bare) > 30, f"only {len(bare)} tests ran"
    assert "passed" in bare.values()
    assert watched == bare
    count, _, rest = proof.read_text().partition(" ")
    assert rest == "reports, Hook"
    assert int(count) > 0
