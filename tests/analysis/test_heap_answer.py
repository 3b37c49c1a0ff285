"""The first sentence of the page of a heap: what it names is there, and what it frees is right."""

from __future__ import annotations

import re
import textwrap

import pytest

from support.processes import python

PROGRAM = """
import functools, gc, re, sys, types, weakref, numpy, cyclescope
gc.disable()

class Thing: ...

def block(mebibytes):
    return numpy.zeros(mebibytes << 20, dtype=numpy.uint8)

def said():
    page = cyclescope.heap().to_html()
    lead = re.search(r'<p class="lead">(.*?)</p>', page).group(1)
    print(re.sub("<(?!/?code)[^>]+>", "", lead))
"""

SHARED = "Other references lead to all of it: deleting this one alone frees none."
CASES = {
    "an object with another reference": (
        "model = [block(8)]\ntrainer = Thing()\ntrainer.model = model\nbackup = [model]\nsaid()",
        rf"^8.0 MiB is in <code>model</code> \(list, 1 item\). {SHARED}",
    ),
    "only a collection frees it": (
        "model = Thing()\nmodel.me = model\nmodel.one, model.two = block(4), block(4)\n"
        "other = block(2)\nsaid()",
        r"in <code>model</code> \(Thing\). Deleting that reference frees 8.0 MiB at the next "
        r"garbage collection.",
    ),
    "a part of an object": (
        "model = Thing()\nmodel.large = block(8)\nmodel.small = block(2)\nsaid()",
        r"in <code>model.large</code> \(ndarray\). Its retained size is 8.0 MiB.",
    ),
    "a variable": (
        "large = block(8)\nsmall = block(1)\nsaid()",
        r"in <code>large</code> \(ndarray\). Deleting that reference frees 8.0 MiB. "
        r"Beside it: <code>small</code> 1.0 MiB.",
    ),
    "a cached call": (
        "load = functools.cache(lambda: {1: block(8), 2: block(1)})\nload()\nsaid()",
        r"in <code>load</code> → a cached call.* Its retained size is",
    ),
    "a suspended generator": (
        "def run():\n    large, small = block(8), block(1)\n    yield large, small\n"
        "run = run()\nnext(run)\nsaid()",
        r"in <code>run</code> → local <code>large</code>",
    ),
    "another module": (
        "sys.modules['store'] = store = types.ModuleType('store')\nstore.cache = {'x': block(8)}\n"
        "del store\nsmall = block(1)\nsaid()",
        r"in <code>store.cache</code> \(dict, 1 item\). Deleting that reference frees 8.0 MiB.",
    ),
    "a variable of each of some calls": (
        "def walk(depth):\n    rows = [block(3), block(3)]\n"
        "    walk(depth - 1) if depth else said()\nwalk(3)",
        r"^6.0 MiB of 24.0 MiB is in <code>rows</code> .*(frees|retained size is) 6.0 MiB\.",
    ),
    "a variable with a traceback behind it": (
        "def fail():\n    batch = block(8)\n    raise ValueError\nlog = []\n"
        "try: fail()\nexcept ValueError as error: log.append(error)\n"
        "log.append(block(4))\nsaid()",
        r"^12.0 MiB is in <code>log</code> \(list, 2 items\). Deleting that reference frees 12",
    ),
    "parts of an object beside it": (
        "model = Thing()\nmodel.large = block(8)\nmodel.small = block(2)\nsaid()",
        r"Beside it: <code>model.small</code> 2.0 MiB.",
    ),
    "a variable of an inner function too": (
        "def run():\n    def inner(): return data\n    data = block(8)\n    said()\n"
        "small = block(1)\nrun()",
        r"in <code>data</code> \(ndarray\). Deleting that reference frees 8.0 MiB.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_it_says(case: str) -> None:
    source, expected = CASES[case]
    done = python("-c", PROGRAM + textwrap.dedent(source), timeout=120)
    assert re.search(expected, done.stdout), (done.stdout, done.stderr)
