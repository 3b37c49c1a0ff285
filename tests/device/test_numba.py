"""Arrays of Numba, with a stand-in for the CUDA driver: no GPU is needed.

Each test runs with the stand-in for Numba, and with the package `numba-cuda` where that is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from support.standin.programs import Program, driver, program

__all__ = ["driver", "program"]

MIB = 2**20

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the driver is found by its ELF soname"
)

IMPORT = {
    "stand-in": "from support.standin import fake_numba; fake_numba.import_numba()",
    "numba-cuda": "import numba.cuda.cudadrv.devicearray; from support.standin import fake_numba",
}
START = """
import random
from support.standin.fake_numba import Gpu, calls
driver = Driver(sys.argv[1])
gpu = Gpu()

def address(array):
    pointer = array.gpu_data._mem.device_pointer
    return pointer.value if hasattr(pointer, "value") else int(pointer)

def known(array):
    driver.knows(address(array))
    return array

def rows(report):
    return sorted([b.device, b.dtype, b.bytes, list(b.shape or ()), b.confirmed]
                  for leak in report.leaks for b in leak.buffers)
"""


def has_numba() -> bool:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT["numba-cuda"]],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


@pytest.fixture(scope="module", params=IMPORT)
def numba(request: pytest.FixtureRequest) -> str:
    if request.param == "numba-cuda" and not has_numba():
        pytest.skip("the package numba-cuda is not installed")
    return IMPORT[request.param]


@pytest.fixture
def run(program: Program, numba: str) -> Callable[[str], Any]:
    return lambda source: program(numba + "\n" + START + source)


def test_a_leak_has_the_bytes_that_numba_counts(run: Callable[[str], Any]) -> None:
    said = run("""
before = gpu.in_use
array = known(gpu.array(4 * 2**20, "float64"))
Holder([array, gpu.view(array)])
del array
grown = gpu.in_use - before
calls.clear()
report = cyclescope.find_tensor_cycles()
(leak,) = report.leaks
print(json.dumps([leak.bytes_held, grown, gpu.in_use - before, rows(report)]))
""")
    held, grown, left, (row,) = said
    assert held == grown == 4 * MIB
    assert left == 0
    assert row[:3] == ["cuda:0", "float64", 4 * MIB]
    assert row[3] in ([MIB // 2], [MIB // 4])
    assert row[4] is True


def test_no_code_of_numbas_runs(run: Callable[[str], Any]) -> None:
    said = run("""
array = known(gpu.array())
views = [gpu.view(array), gpu.of_others(5, 100), gpu.of_others(6, 100, owner=array)]
calls.clear()
ran = []
sys.setprofile(lambda frame, what, argument: ran.append(frame.f_code.co_filename))
heap = cyclescope.heap()
why = cyclescope.why_alive(array)
cyclescope.find_tensor_cycles()
sys.setprofile(None)
ran = [file for file in ran if "cudadrv" in file or "fake_numba" in file]
print(json.dumps([calls, ran, heap.device_bytes, "1.0 MiB" in why.to_text()]))
""")
    assert said == [[], [], MIB, True]


def test_a_device_with_a_number(run: Callable[[str], Any]) -> None:
    said = run("""
second = Gpu(1)
Holder(second.array())
unanswered = cyclescope.find_tensor_cycles(devices="cuda:1")
second = Gpu(1)
made = second.array()
driver.knows(made.gpu_data._mem.size and fake_numba.POINTER, ordinal=3)
Holder(made)
del made
print(json.dumps([rows(unanswered), rows(cyclescope.find_tensor_cycles(devices="cuda:3"))]))
""")
    # What the driver does not know is no memory of a device.
    assert said[0] == []
    assert said[1] == [["cuda:3", "float32", MIB, [MIB // 4], True]]


def test_memory_that_is_alive_is_no_leak(run: Callable[[str], Any]) -> None:
    said = run("""
array = known(gpu.array())
Holder(gpu.view(array))
first = len(cyclescope.find_tensor_cycles().leaks)
view = gpu.view(array)
Holder(array)
del array
second = len(cyclescope.find_tensor_cycles().leaks)
Holder(gpu.of_others(fake_numba.POINTER, 100))
third = len(cyclescope.find_tensor_cycles().leaks)
print(json.dumps([first, second, third, gpu.in_use]))
""")
    assert said == [0, 0, 0, MIB]


def test_an_array_without_elements(run: Callable[[str], Any]) -> None:
    said = run("""
empty = gpu.of_others(7, 4, owner=Holder(None))
empty.gpu_data.size = 0
Holder([empty, gpu.of_others(0, 4, owner=empty)])
del empty
print(json.dumps(len(cyclescope.find_tensor_cycles(devices="any").leaks)))
""")
    assert said == 0


def test_memory_that_another_lent(run: Callable[[str], Any]) -> None:
    """`cuda.as_cuda_array`: the memory is the owner's, and counts once."""
    said = run("""
fake_gpu.import_cupy()
driver.knows()
lender = array()
Holder([lender, gpu.of_others(fake_gpu.POINTER, 2**20, lender)])
del lender
both = rows(cyclescope.find_tensor_cycles())
lender = array()
Holder(gpu.of_others(fake_gpu.POINTER, 2**20, lender))
alive = rows(cyclescope.find_tensor_cycles())
del lender

class Owner:
    pass

Holder(gpu.of_others(fake_gpu.POINTER, 2**20, Owner()))
unknown = [row[2] for row in rows(cyclescope.find_tensor_cycles())]
owner = Owner()
Holder(gpu.of_others(fake_gpu.POINTER, 2**20, owner))
kept = rows(cyclescope.find_tensor_cycles())
print(json.dumps([[row[2] for row in both], alive, unknown, kept]))
""")
    assert said == [[MIB], [], [MIB], []]


def test_the_watch_sees_arrays_that_go_before_finalizers(run: Callable[[str], Any]) -> None:
    """Numba gives memory back in callbacks of weak references, before the watch looks."""
    said = run("""
seen = []
watch = cyclescope.observe_tensor_cycles(seen.append)
sizes = []
for step in range(200):
    array = known(gpu.array(2**20 + 4 * step))
    Holder([array, gpu.view(array)])
    del array
    gc.collect(step % 3)
gc.collect()
watch.flush()
held = sum(leak.bytes_held for report in seen for leak in report.leaks)
print(json.dumps([held, gpu.next - fake_numba.POINTER, gpu.in_use]))
""")
    assert said[2] == 0
    assert said[0] == said[1]


def test_arrays_that_pile_up(run: Callable[[str], Any]) -> None:
    said = run("""
import logging
logging.getLogger("cyclescope").setLevel("ERROR")  # it warns of the growth
kept = []
monitor = cyclescope.LeakMonitor(every=1, min_bytes=0, max_share=float("inf"))
with monitor:
    for step in range(40):
        kept.append({"loss": known(gpu.array(1024))})
        monitor.step()
(growth,) = monitor.found
print(json.dumps([growth.owner, growth.bytes, growth.tensors]))
""")
    owner, size, count = said
    assert "kept" in owner
    assert size == 1024 * count


RANDOM = """
def program(seed):
    chance = random.Random(seed)
    alive = []
    for _ in range(chance.randrange(1, 5)):
        arrays = []
        for _ in range(chance.randrange(1, 5)):
            made = known(gpu.array(4 * chance.randrange(1, 1000)))
            arrays.append(made)
            while chance.random() < 0.4:
                view = gpu.view(made)
                (alive if chance.random() < 0.3 else arrays).append(view)
        chance.shuffle(arrays)
        half = chance.randrange(len(arrays) + 1)
        Holder({"a": arrays[:half], "b": tuple(arrays[half:])})
    return alive

wrong = []
for seed in range(60):
    alive = program(seed)
    kept = {address(array) for array in alive}
    sizes = {place: mem.size for place, mem in gpu.context.allocations.items()}
    truth = sorted(size for place, size in sizes.items() if place not in kept)
    if seed % 2:
        reports = [cyclescope.find_tensor_cycles()]
    else:
        reports = []
        with cyclescope.observe_tensor_cycles(reports.append) as watch:
            gc.collect()
            watch.flush()
    said = sorted(b.bytes for it in reports for leak in it.leaks for b in leak.buffers)
    if said != truth or gpu.in_use != sum(sizes[place] for place in kept):
        wrong.append([seed, said, truth, gpu.in_use])
    alive.clear()
print(json.dumps([wrong, gpu.in_use]))
"""


def test_random_programs_with_a_known_truth(run: Callable[[str], Any]) -> None:
    assert run(RANDOM) == [[], 0]
