"""What PyTorch records of a program is what it would be without a watch that looks meanwhile."""

from __future__ import annotations

import textwrap

import pytest

from support.marks import needs_torch
from support.processes import python

HEAD = """
import gc, sys
import torch
if sys.argv[1] == "watch":
    import cyclescope
    watch = cyclescope.warn_tensor_cycles(devices="any", min_bytes=0)

gc.disable()


class Cell:
    def __init__(self, tensor):
        self.me = self
        self.tensor = tensor


def sparse():
    return torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,))

Cell(torch.ones(1))
Cell(sparse())
gc.collect()

"""

PROGRAMS = {
    "a trace": """
        counts = []
        def double(x):
            Cell(torch.ones(3, 4))
            Cell(sparse())
            counts.append(gc.collect())
            return x * 2
        traced = torch.jit.trace(double, torch.ones(3), check_trace=False)
        names = [node.output().debugName() for node in traced.graph.nodes()]
        print([node.kind() for node in traced.graph.nodes()], names, counts)
    """,
    "a profile": """
        Cell(sparse())
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            gc.collect()
            torch.ones(3) * 2
        print(sorted(event.key for event in profile.key_averages()))
    """,
    "a mode": """
        from torch.utils._python_dispatch import TorchDispatchMode
        seen = []
        class Seen(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                seen.append(str(function))
                return function(*args, **(kwargs or {}))
        Cell(sparse())
        with Seen():
            gc.collect()
            torch.ones(3) * 2
        print(seen)
    """,
}


@needs_torch
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_recorded_is_the_same(name: str) -> None:
    program = HEAD + textwrap.dedent(PROGRAMS[name])
    bare, watched = (python("-c", program, mode) for mode in ("bare", "watch"))
    assert bare.returncode == watched.returncode == 0, bare.stderr + watched.stderr
    assert bare.stdout
    assert watched.stdout == bare.stdout
