"""Sub-interpreters beside the main one, and Python without the GIL."""

from __future__ import annotations

import sys
from itertools import product

import pytest

from support.processes import python

REFUSED = "cyclescope works in the main interpreter only, not in sub-interpreters"

INTERPRETERS = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def create(isolated):
    if sys.version_info >= (3, 13):
        return interpreters.create("isolated" if isolated else "legacy")
    return interpreters.create(isolated=isolated)

def run(interpreter, code):
    problem = getattr(interpreters, "exec", interpreters.run_string)(interpreter, code)
    assert problem is None, problem
"""
"""``create`` and ``run``, whatever the version calls them."""

USE = """
try:
    import cyclescope
    cyclescope.find_tensor_cycles(devices="any")
except ImportError as error:
    assert str(error).startswith({refused!r}), error
else:
    raise AssertionError("it works")
import gc
class Node: pass
for i in range(500):
    node = Node()
    node.self = node
    if i % 50 == 0:
        gc.collect(i % 3)
""".replace("{refused!r}", repr(REFUSED))
"""Refused in words; then collects garbage of its own."""

WATCHED = """
import gc, threading, numpy, cyclescope

class Node:
    pass

def leak():
    node = Node()
    node.self, node.array = node, numpy.zeros(1000)

def watch():
    found = []
    watch = cyclescope.observe_tensor_cycles(found.append, devices="any")
    for i in range(40):
        leak()
        gc.collect(i % 3)
    watch.stop()
    gc.collect()
    # Each node, and nothing else.
    return sum(leak.count for report in found for leak in report.leaks)
"""

# Those that share the lock of the main interpreter, and from 3.12 on those that have their own.
KINDS = [False, True] if sys.version_info >= (3, 12) else [False]


def check(program: str) -> str:
    done = python("-X", "faulthandler", "-c", INTERPRETERS + program, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.parametrize(("isolated", "first"), product(KINDS, [True, False]))
def test_one_is_refused_and_the_main_interpreter_watches(isolated: bool, first: bool) -> None:
    """Also if a sub-interpreter, that ends meanwhile, was the first to import cyclescope."""
    use = f"one = create({isolated}); run(one, USE); interpreters.destroy(one)"
    before, after = (use, "") if first else ("", use)
    program = f"USE = {USE!r}\n{before}\n{WATCHED}\n{after}\nprint(watch())\n{use}\nprint(watch())"
    assert check(program).split() == ["40", "40"]


@pytest.mark.parametrize("isolated", KINDS)
def test_the_native_module_refuses_too(isolated: bool) -> None:
    """Without the package, and before it has made a type: one of an interpreter that ends."""
    native = """
import sys, types
sys.modules["cyclescope"] = package = types.ModuleType("cyclescope")
package.__path__ = [PATH]
try:
    import cyclescope._native
except ImportError as error:
    assert "subinterpreters" in str(error).replace("-", ""), error
else:
    raise AssertionError("it can be imported")
"""
    program = f"""
import os, importlib.util
path = os.path.dirname(importlib.util.find_spec("cyclescope").origin)
one = create({isolated})
run(one, {native!r}.replace("PATH", repr(path)))
interpreters.destroy(one)
{WATCHED}
print(watch())
"""
    assert check(program) == "40"


@pytest.mark.parametrize("isolated", KINDS)
def test_others_run_while_the_main_interpreter_is_looked_at(isolated: bool) -> None:
    """Frames of other interpreters are not touched: under their own lock, they change meanwhile."""
    busy = """
import gc, time
def recursive(n):
    return n if n < 2 else recursive(n - 1) + recursive(n - 2)
def only_in_the_sub_interpreter():
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        recursive(10)
        gc.collect(0)
only_in_the_sub_interpreter()
"""
    program = f"""
{WATCHED}
started = threading.Event()
def other():
    one = create({isolated})
    started.set()
    run(one, {busy!r})
    interpreters.destroy(one)
def holds_it(held):
    done.wait()
done = threading.Event()
threads = [threading.Thread(target=other) for _ in range(3)]
threads += [threading.Thread(target=holds_it, args=(Node(),), name="holder", daemon=True)]
for thread in threads:
    thread.start()
started.wait()
looks = 0
while any(thread.is_alive() for thread in threads[:3]) or not looks:
    leak()
    kept = Node()
    said = str(cyclescope.why_alive(kept))
    assert "`kept`" in said, said
    [held] = (it for it in gc.get_objects() if type(it) is Node and it is not kept and not vars(it))
    text = str(cyclescope.why_alive(held))
    assert "`held`" in text and "holder" in text, text
    del held
    heap = str(cyclescope.heap())
    assert "sub_interpreter" not in said + text + heap
    gc.collect()
    looks += 1
done.set()
for thread in threads:
    thread.join()
print(watch(), looks > 0)
"""
    assert check(program) == "40 True"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="it came with Python 3.14")
def test_in_an_executor_of_interpreters() -> None:
    program = f"""
from concurrent.futures import InterpreterPoolExecutor
{WATCHED}
def use():
    import cyclescope
with InterpreterPoolExecutor(2) as executor:
    for future in [executor.submit(exec, {USE!r}) for _ in range(8)]:
        assert future.result() is None
    print(watch())
"""
    assert check(program) == "40"
