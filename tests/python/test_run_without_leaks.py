"""What the files of ``cyclescope run`` say of a program in which no leak was reported."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import cyclescope
from cyclescope import _native
from cyclescope._cli import run
from support.processes import python

HEAD = """
import gc
import numpy
gc.collect()
class Node:
    def __init__(self, size):
        self.me, self.array = self, numpy.zeros(size, dtype=numpy.uint8)
"""

ANY = ("--devices=any", "--min-bytes=0")

LIMITED: dict[str, tuple[tuple[str, ...], str, str]] = {
    "a leak is small": (
        ("--devices=any",),
        "Node(5000); gc.collect()",
        "A small leak held 4.9 KiB: ",
    ),
    "a leak is ignored": (
        (*ANY, "--ignore=refers-to-itself"),
        "Node(5000); gc.collect()",
        "Ignored: refers-to-itself.",
    ),
    "collections are not seen": (
        ANY,
        "gc.callbacks.clear(); Node(5000); gc.collect(); gc.collect()",
        "garbage collections were not seen",
    ),
}


def written(folder: Path, source: str, *options: str) -> tuple[str, str]:
    """The page and the text."""
    (folder / "program.py").write_text(HEAD + source)
    done = python(
        *["-m", "cyclescope", "run", *options, "-o", "out.html", "-o", "out.txt", "program.py"],
        cwd=folder,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "CYCLESCOPE_MIN_BYTES": "1000000"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    page, text = (folder / "out.html").read_text(), (folder / "out.txt").read_text()
    return page, " ".join(text.split())


def heading(page: str) -> str:
    found = re.search(r"<h1[^>]*>([^<]*)", page)
    assert found is not None
    return found[1]


CANNOT_BE_WATCHED = "The collections of this Python cannot be watched"


def test_a_clean_run_is_clean(tmp_path: Path) -> None:
    cyclescope.observe_tensor_cycles(lambda _: None, devices="any").stop()
    is_watched = _native.unseen_collections() is not None
    page, text = written(tmp_path, "a = [1]; a.append(a); del a; gc.collect()", *ANY)
    assert heading(page) == ("No leaks" if is_watched else "No leaks reported")
    assert ('class="leak clean"' in page) is is_watched
    assert ("In no collection did a cycle hold a tensor or an array." in page) is is_watched
    assert ("no leaks. Written at" in text) is is_watched
    assert "unreachable object" not in page + text


def test_a_python_that_cannot_be_watched_is_not_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "unseen_collections", lambda: None)
    watch = cyclescope.observe_tensor_cycles(lambda _: None, devices="any")
    watch.stop()
    text = " ".join(run._report_of_run(watch, []).to_text().split())
    assert "no leaks were reported" in text
    assert f"Note: {CANNOT_BE_WATCHED}: leaks that they freed are not known." in text


@pytest.mark.parametrize("name", LIMITED)
def test_what_is_not_known_is_said(tmp_path: Path, name: str) -> None:
    options, source, sentence = LIMITED[name]
    page, text = written(tmp_path, source, *options)
    assert heading(page) == "No leaks reported"
    assert 'class="leak clean"' not in page
    assert sentence in page
    assert sentence in text
    assert "no leaks were reported" in text


def test_a_run_that_can_find_nothing_is_not_clean(tmp_path: Path) -> None:
    page, text = written(tmp_path, "Node(5000); gc.collect()", "--devices=cuda")
    assert heading(page) == "No leaks reported"
    assert "Nothing could be found, because only GPU memory is watched" in page
    assert "no leaks were reported" in text


def test_what_came_later_is_said_to_be_counted_only(tmp_path: Path) -> None:
    source = "for size in (5000, 20000, 40000):\n    Node(size)\n    gc.collect()\n"
    page, text = written(tmp_path, source, *ANY)
    assert heading(page) == "63.5 KiB held by 1 leak"
    assert "That is what was seen first, 4.9 KiB of 63.5 KiB; what came later is only" in text
    assert "Seen again since and only counted: 58.6 KiB." in page
    assert "with the memory first seen" in page
    assert "with the memory of all" not in page


def test_leaks_that_are_not_described_are_not_summed_up(tmp_path: Path) -> None:
    source = """
for number in range(80):
    exec(f"class Node{number}:\\n    pass")
    node = eval(f"Node{number}")()
    setattr(node, f"me{number}", node)
    node.array = numpy.zeros(5000, dtype=numpy.uint8)
del node
gc.collect()
"""
    page, text = written(tmp_path, source, *ANY, "-o", "out.json")
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["left_out"] == 80 - len(report["leaks"])
    assert heading(page).startswith("At least ")
    assert "more groups of cycles that held memory are not described" in page
    assert "held at least" in text
