"""Device memory of known leaks is given back in the collection that frees them, watched or not."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = """
import gc, logging, sys
kind, mode = sys.argv[1:]
if mode == "watch":
    import cyclescope
    logging.getLogger("cyclescope").addHandler(logging.NullHandler())
    logging.getLogger("cyclescope").propagate = False
    watch = cyclescope.warn_tensor_cycles()
import torch
torch.zeros(1, device="cuda")
if kind.startswith("cupy"):
    import cupy
    used = lambda: cupy.get_default_memory_pool().used_bytes()
else:
    used = lambda: torch.cuda.memory_allocated()

make = {
    "tensor": lambda: torch.empty(2**20, dtype=torch.uint8, device="cuda"),
    "view": lambda: torch.empty((2, 2**19), dtype=torch.uint8, device="cuda")[1],
    "graph": lambda: (torch.ones(2**18, device="cuda", requires_grad=True) * 2).exp(),
    "storage": lambda: torch.empty(2**20, dtype=torch.uint8, device="cuda").untyped_storage(),
    "cupy": lambda: cupy.empty(2**20, dtype=cupy.uint8),
    "cupy view": lambda: cupy.empty((2, 2**19), dtype=cupy.uint8)[1],
}[kind]

class Holder:
    pass

gc.disable()
seen = []
for step in range(1500):
    it = Holder()
    it.me, it.held = it, make()
    it = None
    seen.append((gc.collect(0), used()))
# A collection may free more where it is the first; all others are alike.
print(sorted(set(seen[10:])), used())
if mode == "watch":
    watch.flush()
    print(sum(leak.count for leak in watch.leaks), file=sys.stderr)
"""


@pytest.mark.parametrize("kind", ["tensor", "view", "graph", "storage", "cupy", "cupy view"])
def test_known_leaks_give_their_memory_back(kind: str) -> None:
    def run(mode: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, kind, mode],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    bare, watched = run("bare"), run("watch")
    assert (watched.returncode, watched.stdout) == (bare.returncode, bare.stdout), watched.stderr
    assert bare.returncode == 0, bare.stderr
    assert int(watched.stderr.split()[-1]) == 1500
