"""Buffers of RMM and cuda.core, with a stand-in for the CUDA driver: no GPU is needed.

Each test runs with stand-ins for the packages, and with the real ones where they are installed.
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
    "stand-ins": "from support.standin import fake_buffers; fake_buffers.import_stand_ins()",
    "packages": "import rmm, rmm.mr, cuda.core; from support.standin import fake_buffers",
}
START = """
from support.standin.fake_buffers import allocated, core_buffer, core_view, rmm_buffer
driver = Driver(sys.argv[1])
address = lambda buffer: buffer.ptr if hasattr(buffer, "ptr") else int(buffer.handle)

def known(buffer, **what):
    driver.knows(address(buffer), **what)
    return buffer

def rows(report):
    return sorted([b.device, b.bytes, b.confirmed] for l in report.leaks for b in l.buffers)
"""


@pytest.fixture(scope="module", params=IMPORT)
def packages(request: pytest.FixtureRequest) -> str:
    source = IMPORT[request.param]
    done = subprocess.run(
        [sys.executable, "-c", source],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=False,
    )
    if request.param == "packages" and done.returncode != 0:
        pytest.skip("RMM and cuda.core are not installed")
    return source


@pytest.fixture
def run(program: Program, packages: str) -> Callable[[str], Any]:
    return lambda source: program(packages + "\n" + START + source)


@pytest.mark.parametrize("make", ["rmm_buffer", "core_buffer"])
@pytest.mark.parametrize("how", ["found", "watched"])
def test_a_leak_has_the_bytes_that_the_allocator_counts(
    run: Callable[[str], Any], make: str, how: str
) -> None:
    look = {
        "found": "reports = [cyclescope.find_tensor_cycles()]",
        "watched": """
reports = []
with cyclescope.observe_tensor_cycles(reports.append) as watch:
    gc.collect()
    watch.flush()
""",
    }
    said = run(f"""
Holder([known({make}(2**20 + 8)), known({make}(4096), ordinal=2)])
counted = sum(allocated.values())
{look[how]}
print(json.dumps([sum((rows(it) for it in reports), []), counted, allocated]))
""")
    rows, counted, left = said
    assert rows == [["cuda:0", MIB + 8, True], ["cuda:2", 4096, True]]
    assert counted == MIB + 8 + 4096
    assert left == {}


@pytest.mark.parametrize("make", ["rmm_buffer", "core_buffer"])
def test_what_looks_like_a_leak_is_none(run: Callable[[str], Any], make: str) -> None:
    said = run(f"""
alive = known({make}())
Holder(alive)
Holder({make}(4096))  # memory that the driver does not know
on_host = known({make}(64), kind="host")
Holder(on_host)
del on_host
print(json.dumps(rows(cyclescope.find_tensor_cycles())))
""")
    assert said == []


def test_memory_that_another_lent(run: Callable[[str], Any]) -> None:
    said = run("""
lender = known(rmm_buffer())
Holder(core_view(address(lender), 2**20, lender))
alive = rows(cyclescope.find_tensor_cycles())
Holder([lender, core_view(address(lender), 4096, lender)])
del lender
once = rows(cyclescope.find_tensor_cycles())
number = known(core_view(5, 100))
Holder(number)
del number
nobodys = rows(cyclescope.find_tensor_cycles())
print(json.dumps([alive, once, nobodys]))
""")
    assert said == [[], [["cuda:0", MIB, True]], []]


@pytest.mark.parametrize("make", ["rmm_buffer", "core_buffer"])
def test_what_is_alive_and_what_grows(run: Callable[[str], Any], make: str) -> None:
    said = run(f"""
import logging
logging.getLogger("cyclescope").setLevel("ERROR")  # it warns of the growth
kept = []
monitor = cyclescope.LeakMonitor(every=1, min_bytes=0, max_share=float("inf"))
with monitor:
    for step in range(40):
        kept.append({{"loss": known({make}(1024))}})
        monitor.step()
growths = [[it.owner, it.bytes // it.tensors] for it in monitor.found]
heap = cyclescope.heap()
why = cyclescope.why_alive(kept[0]["loss"]).to_text()
print(json.dumps([growths, heap.device_bytes, "1.0 KiB on cuda:0" in why, "`kept`" in why]))
""")
    (growth,), held, *why = said
    assert "kept" in growth[0]
    assert growth[1] == 1024
    assert held == 40 * 1024
    assert why == [True, True]
