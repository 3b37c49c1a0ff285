"""Threads with little stack, parameters that are replaced, and too little memory for a look."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import pytest

import cyclescope
from support.nodes import SOURCE
from support.processes import python


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    head = f"import gc, sys, threading\nimport numpy\nimport cyclescope\n{SOURCE}\n"
    return python("-c", head + textwrap.dedent(program), *arguments, timeout=240)


IN_A_SMALL_THREAD = """
if "early" in sys.argv:
    threading.stack_size(int(sys.argv[1]))
watch = cyclescope.warn_tensor_cycles(devices="any", min_bytes=0)

def work():
    for _ in range(5):
        Node()
        gc.collect()
    for look in (cyclescope.heap, cyclescope.find_tensor_cycles, lambda: cyclescope.why_alive([1])):
        try:
            look()
        except RuntimeError as error:
            said.append(str(error))

said = []
threading.stack_size(int(sys.argv[1]))
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert all("KiB of stack" in each for each in said), said
assert not ("early" in sys.argv and threading.stack_size() != int(sys.argv[1]))
for _ in range(3):
    Node()
    gc.collect()
assert watch.flush(60)
print(len(said))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other least sizes")
@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize("kib", [64, 96, 128, 1024])
def test_a_thread_with_little_stack(kib: int, when: str) -> None:
    done = run(IN_A_SMALL_THREAD, str(kib << 10), when)
    assert done.returncode == 0, done.stderr
    refused = int(done.stdout)
    assert refused == (0 if kib == 1024 else 3)


def test_parameters_can_be_replaced_while_growth_is_watched() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(64, 64)
    model(torch.ones(1, 64)).sum().backward()
    monitor = cyclescope.LeakMonitor(every=1, devices="any", min_bytes=0)
    for _ in range(3):
        monitor.step()
    swap = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.double()
        monitor.step()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swap)
        monitor.stop()
        gc.collect()
    assert model.weight.dtype == torch.float64


IN_A_SMALL_THREAD_OF_A_FORK = """
import os, warnings
warnings.simplefilter("ignore")
watch = cyclescope.warn_tensor_cycles(devices="any", min_bytes=0)
statuses = []

def work():
    child = os.fork()
    if child == 0:
        gc.collect()
        os._exit(7)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

threading.stack_size(65536)
thread = threading.Thread(target=work)
thread.start()
thread.join()
Node()
gc.collect()
assert watch.flush(60)
print(statuses)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other least sizes")
def test_a_fork_by_a_thread_with_little_stack() -> None:
    done = run(IN_A_SMALL_THREAD_OF_A_FORK)
    assert (done.returncode, done.stdout) == (0, "[7]\n"), done.stderr
    assert "RuntimeError" not in done.stderr, done.stderr


WITH_LITTLE_MEMORY = """
import resource
kept = [[number, [number], {number: number}] for number in range(200_000)]
look = {"heap": cyclescope.heap, "why": lambda: cyclescope.why_alive(kept)}[sys.argv[1]]
look()
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for more in (64, 32, 16, 8, 4):
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (more << 20), resource.RLIM_INFINITY))
    try:
        look()
    except MemoryError:
        pass
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
print("alive")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("look", ["heap", "why"])
def test_too_little_memory_for_a_look_is_a_memory_error(look: str) -> None:
    done = run(WITH_LITTLE_MEMORY, look)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
