"""What IPython runs is named as it names it, by the number of the cell, and shown from there."""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy
import pytest

import cyclescope
from support.marks import needs_ipython
from support.processes import python

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
    assert leak.source is None
    assert "3022363108" not in f"{report}{report.to_json()}"
    assert 'class="open"' not in report.to_html()


@pytest.mark.parametrize(
    ("program", "session", "named"),
    [
        ("/env/lib/ipykernel_launcher.py", "/home/user/train.ipynb", "/home/user/train.ipynb"),
        ("/env/lib/ipykernel_launcher.py", None, "notebook"),
        ("train.py", "/home/user/train.ipynb", "train.py"),
    ],
)
def test_a_kernel_is_called_as_its_notebook(program: str, session: str | None, named: str) -> None:
    environment = {} if session is None else {"JPY_SESSION_NAME": session}
    code = (
        f"import json, sys; sys.argv[:] = [{program!r}]; import cyclescope;"
        "report = json.loads(cyclescope.find_tensor_cycles(devices='any').to_json());"
        "print(report['process']['program'])"
    )
    kept = {key: value for key, value in os.environ.items() if key != "JPY_SESSION_NAME"}
    done = python("-c", code, env=kept | environment | {"PYTHONPATH": ":".join(sys.path)})
    assert done.stdout == f"{named}\n", done.stderr


SESSION = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in json.loads(sys.argv[1]):
    shell.run_cell(cell, store_history=True).raise_error()
(leak,) = shell.user_ns["report"].leaks
lines = leak.source and [leak.source.file, leak.source.marked]
others = [[each.file, each.marked] for each in leak.candidate_sources]
text = shell.user_ns["report"].to_text(color=False)
print(json.dumps([lines, others, leak.patch and leak.patch.diff, text]))
"""

BEGIN = "import cyclescope, gc, numpy\ngc.collect(); gc.disable()"
CLASS = "class Node:\n    pass"
FIELD = "class Node:\n    def set(self):\n\n        self.me = self"
MAKE = "node = Node()\nnode.data = numpy.ones(2**18)"
STORE = "print(1)\n\nnode.me = node"
CALL = "node.set()"
END = "del node\nreport = cyclescope.find_tensor_cycles(devices='any')"


def session(folder: Path, *cells: str) -> Any:
    (folder / "helper.py").write_text(
        "def keep(node):\n    node.me = node\n\ndef other(node):\n    pass\n", encoding="utf-8"
    )
    path = ":".join([str(folder), *sys.path])
    environment = os.environ | {"IPYTHONDIR": str(folder), "PYTHONPATH": path}
    done = python("-c", SESSION, json.dumps([BEGIN, *cells, END]), env=environment, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@needs_ipython
@pytest.mark.parametrize(
    ("cells", "at"),
    [
        ((CLASS, MAKE, STORE), ["In[4]", 3]),
        ((FIELD, MAKE, CALL), ["In[2]", 4]),
        ((CLASS, MAKE, "%load_ext autoreload\n%pwd", STORE), ["In[5]", 3]),
        ((CLASS, MAKE, "%%bash\ntrue", STORE), ["In[5]", 3]),
        # Nothing is said where code ran that is in no cell.
        ((CLASS, MAKE, "%time 1", STORE), None),
        ((CLASS, MAKE, "%%time\n1\n2", STORE), None),
        ((CLASS, MAKE, STORE, "import linecache; linecache.clearcache()"), None),
    ],
    ids=["store", "method", "magic", "shell", "time", "cell magic", "cleared"],
)
def test_the_line_of_a_cell_is_shown(tmp_path: Path, cells: Any, at: Any) -> None:
    lines, _, patch, text = session(tmp_path, *cells)
    assert lines == at, text
    assert patch is None
    if at is not None:
        assert f"Fix:  {at[0]}:{at[1]}: `Node.me` is the object itself." in text
        assert ".me = " in text


@needs_ipython
def test_each_cell_that_may_have_made_it_is_named(tmp_path: Path) -> None:
    lines, others, _, text = session(tmp_path, CLASS, MAKE, STORE, STORE + "\n# once more")
    assert (lines, others) == (None, [["In[4]", 3], ["In[5]", 3]]), text


@needs_ipython
def test_a_module_that_a_cell_imports_may_have_made_it(tmp_path: Path) -> None:
    lines, others, _, text = session(
        tmp_path, CLASS, MAKE, "import helper", "helper.keep(node)", "if 0: node.me = node"
    )
    assert lines is None, text
    assert [Path(file).name for file, _ in others] == ["helper.py", "In[6]"], text
