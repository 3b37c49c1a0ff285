"""Does what the program's data is stay out of what ``redact`` says of memory that is alive?

As in ``test_privacy``: secrets are planted wherever they could be found, in a process of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.planted import SECRET, run

ALIVE = '''
import tracemalloc, types

tracemalloc.start()
kept = {}


class Plain:
    """What is kept by it has its name from an attribute."""


def array():
    return numpy.zeros(2**17)


kept["in a key"] = [array()]
table = {SECRET: {(SECRET, 1): {SECRET.encode(): kept["in a key"][0]}}}
kept["in an attribute"] = [array()]
plain = Plain()
setattr(plain, "for " + SECRET, kept["in an attribute"][0])
kept["in a class"] = [array()]
odd = type("Of " + SECRET, (Plain,), {"__module__": "module " + SECRET})()
odd.array = kept["in a class"][0]
kept["in a module"] = [array()]
module = sys.modules["module " + SECRET] = types.ModuleType("module " + SECRET)
setattr(module, "array", kept["in a module"][0])
setattr(module, "name " + SECRET, kept["in a module"][0])
kept["in keywords"] = [array()]
partial = functools.partial(print, **{"name " + SECRET: kept["in keywords"][0]})
kept["in a namespace"] = [array()]
space = {SECRET: kept["in a namespace"][0]}
exec(compile("def function(): pass", os.getcwd() + "/made.py", "exec"), space)
function = space.pop("function")
del space
kept["in a frame"] = [array()]


def wait(held, secret=SECRET):
    begun.set()
    done.wait()


begun, done = threading.Event(), threading.Event()
thread = threading.Thread(target=wait, args=kept["in a frame"], name=SECRET, daemon=True)
thread.start()
begun.wait()
'''

HEAP = """
# Where an array is named by what was planted, and not by this list of them.
arrays = {where: held.pop() for where, held in kept.items()}
del kept
heap = cyclescope.heap(redact=REDACT)
tables = [heap.top(by) for by in ("owner", "class", "module", "site", "category")]
said = {"heap": "\\n".join([str(heap), repr(heap), heap.to_json(), repr(heap.buffers),
        str(heap.diff(heap)), heap.diff(heap).to_json()]
        + [table.to_json() + str(table) + repr(table.rows) for table in tables]
        + [f"{each.owner} {each.module} {each.site} {each.type_name}" for each in heap.buffers])}
for where in list(arrays):
    held = arrays.pop(where)
    retention = cyclescope.why_alive(held, redact=REDACT)
    assert retention.paths, where
    said[where] = "\\n".join([str(retention), repr(retention), retention.to_json()]
        + [f"{path!r} {path.root_words} {list(path)} {[step.location for step in path]}"
           for path in retention.paths])
done.set()
print(json.dumps({where: SECRET in text for where, text in said.items()}))
print(said["heap"] if REDACT else "")
"""

PLACES = 8


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_the_live_heap_has_no_secret(tmp_path: Path, how: str) -> None:
    source = ALIVE + HEAP.replace("REDACT", str(how == "argument"))
    environment = {"CYCLESCOPE_REDACT": "1"} if how == "variable" else {}
    said = run(source, tmp_path, SECRET, **environment)
    found = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert len(found) == PLACES
    assert not any(found.values()), found
    if how == "argument":
        # It says so, and what is left is of use.
        assert SECRET not in said
        assert "redact=True" in said
        assert "train.py:" in said
        assert "Plain" in said


def test_the_secrets_of_the_live_heap_would_be_found(tmp_path: Path) -> None:
    """The test above can fail: each of these is there without ``redact``."""
    said = run(ALIVE + HEAP.replace("REDACT", "False"), tmp_path, SECRET)
    found = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert [where for where, is_there in found.items() if not is_there] == []
    assert len(found) == PLACES


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    source = """
for ask in (cyclescope.heap, lambda: cyclescope.why_alive([])):
    try:
        ask()
    except ValueError as error:
        print(error)
"""
    said = run(source, tmp_path, SECRET, CYCLESCOPE_REDACT="maybe")
    assert said.count("CYCLESCOPE_REDACT: redact must be true or false, not 'maybe'") == 2


GROWTH = '''
import tracemalloc
import torch
from cyclescope._live.postmortem import Examiner
from cyclescope import _native

tracemalloc.start()


class Plain:
    """What is kept by it has its name from an attribute."""


def train(model, kept):
    weight = torch.ones(8, 8, requires_grad=True)
    model.last = model(torch.ones(4, 4))
    setattr(model, "last " + SECRET, model.last)
    with cyclescope.watch_growth(every=1, devices="any", min_bytes=0, redact=REDACT) as monitor:
        monitor._max_share = float("inf")
        for _ in range(40):
            add((torch.ones(4, 8) @ weight).sum())
            monitor.step()
        examiner = Examiner(torch, 0, 2**20, 2**30, 0, 60.0)
        examiner._parts = _native.Examination("cpu", 0.0)
        examiner.examine(lambda early: None)
        found = examiner.found
    written["growth"] = repr([(str(each), each.as_dict()) for each in monitor.found])
    written["post-mortem"] = found.to_text() + found.to_json() + examiner.page()
    return monitor.found, found


def keeper():
    losses = []
    plain = type("Of " + SECRET, (Plain,), {})()
    setattr(plain, "for " + SECRET, losses)
    return plain, lambda loss: losses.append(loss)


plain, add = keeper()
model = type("Net " + SECRET, (torch.nn.Linear,), {})(4, 4)
grown, found = train(model, plain)
assert {each.pattern for each in grown} >= {"kept-with-graph", "activation-on-module"}, grown
assert found.graphs and found.owners and found.requested_at and found.growth, found
print(json.dumps(sorted(name for name, text in written.items() if SECRET in text)))
'''


def test_growth_and_post_mortems_have_no_secret(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="what grows is looked for in PyTorch's tensors")
    said = run(GROWTH.replace("REDACT", "True"), tmp_path, SECRET)
    assert "[]" in said.splitlines()
    # The warnings in the log.
    assert "(…) → .…" in said
    assert "explain kept-with-graph" in said
    assert SECRET not in said


def test_the_secrets_of_growth_would_be_found(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="what grows is looked for in PyTorch's tensors")
    said = run(GROWTH.replace("REDACT", "False"), tmp_path, SECRET)
    assert '["growth", "post-mortem"]' in said.splitlines()
