"""What IPython runs is named as it names it: by the number of the cell."""

from __future__ import annotations

import sys
import types

import numpy
import pytest

import cyclescope

FILE = "/tmp/ipykernel_4242/3022363108.py"
CELL = """
class Trainer:
    def __init__(self):
        self.batch = numpy.ones(2**18)
        self.on_step = lambda: self.batch

Trainer()
"""


@pytest.mark.usefixtures("collector_paused")
def test_a_leak_of_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(compile=types.SimpleNamespace(_filename_map={FILE: 7}))
    module = types.ModuleType("IPython.core.interactiveshell")
    vars(module)["InteractiveShell"] = types.SimpleNamespace(_instance=shell)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(CELL, FILE, "exec"), {"numpy": numpy, "__name__": "__main__"})
    report = cyclescope.find_tensor_cycles(devices="any")
    (leak,) = report.leaks
    assert leak.cuts[0].location == "In[7]:5"
    assert leak.advice.startswith("`Trainer.on_step` is a lambda (In[7]:5)")
    assert "3022363108" not in f"{report}{report.to_json()}"
    assert 'class="open"' not in report.to_html()
