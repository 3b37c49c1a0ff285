"""What becomes of a program that runs out of memory while it is watched."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from support.marks import needs_torch
from support.nodes import SOURCE
from support.processes import python

HEAD = f"""
import gc, sys
import numpy
import cyclescope

gc.disable()
{SOURCE}

"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python("-c", HEAD + textwrap.dedent(program), *arguments, timeout=240)


EACH_ALLOCATION = """
import _testcapi

seen = []
# The report is not read here: that is the callback's own doing, and where there is not even memory
# for the exception, PyO3 ends the process.
watch = cyclescope.observe_tensor_cycles(seen.append, devices="any")
fails = int(sys.argv[1])
for first in range(1, 250):
    Node()
    _testcapi.set_nomemory(first, first + fails)
    try:
        gc.collect()
    except MemoryError:
        pass
    finally:
        _testcapi.remove_mem_hooks()
    watch.flush()
    # Where CPython had no memory to call back at the end of the collection, this one ends it.
    gc.collect()
    watch.flush()
    assert gc.get_debug() == 0, first
    assert not gc.garbage, first
    assert [c for c in gc.callbacks if "cyclescope" in repr(c)], first
before = len(seen)
for _ in range(5):
    Node()
    gc.collect()
watch.stop()
print(len(seen) - before)
"""


@pytest.mark.parametrize("fails", [1, 30, 100_000])
def test_any_allocation_of_a_collection_may_fail(fails: int) -> None:
    """Each in its turn, alone or with those after it; then there is memory, and all is well."""
    pytest.importorskip("_testcapi", reason="CPython's own tests are not installed")
    done = run(EACH_ALLOCATION, str(fails))
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    assert "stopped watching" not in done.stderr


WITH_TORCH = """
import torch
class Node:
    def __init__(self):
        self.me = self
        self.array = torch.ones(3)

Node()
gc.collect()
gc.freeze()
"""


@needs_torch
@pytest.mark.parametrize("fails", [1, 100_000])
def test_any_allocation_of_a_collection_with_torch_may_fail(fails: int) -> None:
    pytest.importorskip("_testcapi", reason="CPython's own tests are not installed")
    done = run(WITH_TORCH + EACH_ALLOCATION, str(fails))
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    assert "panicked" not in done.stderr, done.stderr
    assert "stopped watching" not in done.stderr


EACH_CHECK = """
import _testcapi
from cyclescope import _native

cyclescope.find_tensor_cycles(devices="any")
failed = 0
for first in range(1, 250):
    Node()
    _testcapi.set_nomemory(first, first + 1)
    try:
        _native.find(["any"], [])
    except BaseException as error:
        # Where there is no memory for what Python is to be given, PyO3 panics, and says so.
        assert isinstance(error, MemoryError) or type(error).__name__ == "PanicException", error
        failed += 1
    finally:
        _testcapi.remove_mem_hooks()
    gc.collect()
    assert (gc.get_debug(), gc.garbage) == (0, []), first
assert failed
Node()
print(len(cyclescope.find_tensor_cycles(devices="any").leaks))
"""


def test_any_allocation_of_a_check_may_fail() -> None:
    pytest.importorskip("_testcapi", reason="CPython's own tests are not installed")
    done = run(EACH_CHECK)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


NO_ROOM = """
import resource

watch = cyclescope.warn_tensor_cycles(devices="any")
nodes = [Node.__new__(Node) for _ in range(300_000)]
for node, other in zip(nodes, nodes[1:] + nodes[:1]):
    node.me = other
nodes[0].array = numpy.zeros(2**17)
with open("/proc/self/statm", encoding="ascii") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[1]) * 2**20, resource.RLIM_INFINITY))
try:
    del nodes, node, other
    collected = gc.collect()
except MemoryError:
    collected = None
assert (gc.get_debug(), gc.garbage) == (0, [])
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, -1))
watch.flush()
class Single(Node):
    pass
Single()
gc.collect()
watch.stop()
print(collected, len(watch.leaks))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory there is")
@pytest.mark.parametrize("mib", [8, 20, 40, 80, 160, 240])
def test_a_program_near_its_limit_goes_on(mib: int) -> None:
    """What is too much to look at in the memory that is left is freed all the same."""
    if mib < 20 and sys.version_info >= (3, 14):
        pytest.skip("destroying the ring takes CPython 3.14 up to 8 MiB of stack, watched or not")
    done = run(NO_ROOM, str(mib))
    assert done.returncode == 0, done.stderr
    collected, leaks = done.stdout.split()
    assert int(collected) >= 300_000
    # The ring where there was room for it, and the single node in any case.
    assert leaks in ("1", "2")
    if leaks == "1":
        assert "not enough memory to inspect" in done.stderr


VERY_MUCH = """
import weakref

watch = cyclescope.warn_tensor_cycles(devices="any")
for _ in range(2):
    it = Node()
    it.many = [[] for _ in range(2_000_000)]
    it.many.append(it)
    array = weakref.ref(it.array)
    del it
    print(gc.collect() > 2_000_000, array())
print(gc.garbage)
Node()
gc.collect()
watch.flush()
print([leak.bytes for leak in watch.leaks])
it = Node()
it.many = [[] for _ in range(2_000_000)]
it.many.append(it)
del it
print(len(cyclescope.find_tensor_cycles(devices="any").leaks))
"""


def test_very_much_garbage_is_freed_unexamined_and_that_is_said_once() -> None:
    """It would hold up the program for seconds; whoever asks for it gets it."""
    done = run(VERY_MUCH)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["True None", "True None", "[]", "[1048576]", "2", ""]
    assert done.stderr.count("does not search more than") == 1


NOTHING_LEFT = """
import ctypes, logging, resource

logging.getLogger("cyclescope").disabled = True
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
watch = cyclescope.warn_tensor_cycles(devices="any")
for generation in (0, 1, 2) * 4:
    Node()
    gc.collect(generation)
watch.flush(60)
held = [Node() for _ in range(20)]
taken, count = (ctypes.c_void_p * 4_000_000)(), 0
with open("/proc/self/statm", encoding="ascii") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 2**20, -1))
for size in (2**20, 2**16, 2**12, 2**8, 64, 16):
    while got := libc.malloc(size):
        taken[count] = got
        count += 1
held = None
found = gc.collect()
for i in range(count):
    libc.free(taken[i])
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(found >= 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory there is")
def test_a_collection_without_any_memory_goes_on() -> None:
    """What Rust asks for comes from a reserve; without one it would end the process."""
    done = run(NOTHING_LEFT)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


STEP = """
import mmap, resource

monitor = cyclescope.watch_growth(every=1, min_bytes=0, devices="any")
objects = [[i] for i in range(50_000)]
if sys.argv[1] == "later":
    monitor.step()
with open("/proc/self/statm", encoding="ascii") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 2**24, -1))
taken, small = [], []
try:
    while True:
        taken.append(mmap.mmap(-1, 2**16))
except (MemoryError, OSError):
    pass
try:
    while True:
        small.append(bytearray(3000))
except MemoryError:
    pass
taken.pop().close()
for _ in range(3):
    monitor.step()
small.clear()
taken.clear()
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
before = monitor.cost.samples
monitor.sample()
print(monitor.cost.samples - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory there is")
@pytest.mark.parametrize("first", ["first", "later"])
def test_a_step_of_a_monitor_without_memory_goes_on(first: str) -> None:
    done = run(STEP, first)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_many_shortages_leave_the_watch_at_work() -> None:
    """What stays of the memory put aside must not use all of it up."""
    done = run(SHORTAGES)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


SHORTAGES = """
import itertools, resource

watch = cyclescope.observe_tensor_cycles(lambda report: None, devices="any")
Node()
gc.collect()
for number in range(60):
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    kind = type(f"Kind{number}", (Node,), {})
    things = [kind() for _ in range(50)]
    del things
    resource.setrlimit(resource.RLIMIT_AS, (size + 2**20, -1))
    balloon = []
    for size in (2**18, 2**14, 2**10):
        try:
            balloon.extend(map(bytearray, itertools.repeat(size)))
        except MemoryError:
            pass
    gc.collect()
    del balloon
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
watch.flush(60)
before = sum(leak.count for leak in watch.leaks)
Node()
gc.collect()
watch.flush(60)
print(sum(leak.count for leak in watch.leaks) - before)
"""
