"""Leaks by the million under a watch that knows them: does memory stay flat?

Each kind of buffer is leaked by a cycle, collected, and leaked again, in a process of its own and
with no call into cyclescope between. ``distinct`` are leaks that were never there before, and
``class`` is a class made anew each time. After a tenth of them as a warm-up, the process may not
grow by more than ``--allowed``.

usage: python tests/harmless/memory.py [--kind KIND ...] [--count 3000000] [--bytes 256]
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy

SAMPLES = 40


class Step:
    """An object that refers to itself and to a buffer."""

    def __init__(self, buffer: Any) -> None:
        self.me = self
        self.buffer = buffer


class Array(numpy.ndarray[Any, Any]):
    """Has a ``__dict__``."""


def host_buffers(size: int) -> dict[str, Callable[[], Any]]:
    pickled = pickle.dumps(numpy.ones(size, numpy.uint8), 2)
    return {
        "array": lambda: numpy.ones(size, numpy.uint8),
        "view": lambda: numpy.ones((2, size // 2), numpy.uint8)[:, 1:],
        "bytearray": lambda: numpy.ndarray((size,), numpy.uint8, bytearray(size)),
        "unpickled": lambda: pickle.loads(pickled),
        "subclass": lambda: numpy.ones(size, numpy.uint8).view(Array),
    }


def tensors(size: int, device: str) -> dict[str, Callable[[], Any]]:
    import torch

    def make() -> Any:
        return torch.ones(size, dtype=torch.uint8, device=device)

    return {
        "tensor": make,
        "tensor-view": lambda: make()[1:],
        "parameter": lambda: torch.nn.Parameter(make(), requires_grad=False),
        "graph": lambda: (torch.ones(size // 4, device=device, requires_grad=True) * 2).exp(),
        "storage": lambda: make().untyped_storage(),
    }


def cupy_arrays(size: int) -> dict[str, Callable[[], Any]]:
    import cupy  # type: ignore[import-not-found,unused-ignore]

    return {"cupy": lambda: cupy.ones(size, cupy.uint8)}


HOST = ["array", "view", "bytearray", "unpickled", "subclass"]
TENSORS = ["tensor", "tensor-view", "parameter", "graph", "storage"]
MADE = ["class", "distinct"]


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def letters(number: int) -> str:
    """A name for a number; digits would be taken for a counter, and the leaks for one."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def maker(kind: str, size: int, device: str | None) -> Callable[[int], None]:
    """Makes a leak of this kind; of the number depends what kind of leak, if all are distinct."""
    if kind in MADE:
        make = host_buffers(size)["array"]
        if kind == "class":
            return lambda number: type("Made", (Step,), {})(make()) and None
        return lambda number: type(f"Made{letters(number)}", (Step,), {})(make()) and None
    if kind in HOST:
        make = host_buffers(size)[kind]
    elif kind in TENSORS:
        make = tensors(size, device or "cpu")[kind]
    else:
        make = cupy_arrays(size)[kind]

    def leak(number: int) -> None:
        Step(make())

    return leak


def run(args: argparse.Namespace) -> None:
    """Leak one kind in this process; end with 1 if it grew."""
    (kind,) = args.kind
    leak = maker(kind, args.bytes, args.device)
    folder = tempfile.TemporaryDirectory()
    if not args.bare:
        import cyclescope

        logger = logging.getLogger("cyclescope")
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        watch = cyclescope.warn_tensor_cycles(
            devices=args.device or ("cuda" if kind == "cupy" else "any"), report_dir=folder.name
        )
    gc.collect()
    gc.freeze()
    gc.disable()
    warm = max(args.count // 10, min(args.count, 1000))
    for number in range(warm):
        leak(number)
        if number % args.every == 0:
            gc.collect(0)
    # What is told is told; the thread that tells has its memory by then.
    time.sleep(args.pause)
    samples = [resident()]
    begun = time.monotonic()
    part = max(1, args.count // SAMPLES)
    for number in range(warm, warm + args.count):
        leak(number)
        if number % args.every == 0:
            gc.collect(0)
        if number % part == 0:
            samples.append(resident())
    seconds = time.monotonic() - begun
    gc.collect()
    samples.append(resident())
    # The most that is in use at any time, short of the noise of a single sample.
    growth = (sorted(samples)[-2] - samples[0]) / 2**20
    print(
        f"{kind}: {args.count:,} leaks of {args.bytes:,} bytes, "
        f"{1e6 * seconds / args.count:.1f} µs each: "
        f"resident {samples[0] / 2**20:.1f} MiB, then at most {growth:+.1f} MiB",
        flush=True,
    )
    if not args.bare:
        counted = sum(leak.count for leak in watch.leaks)
        print(f"  the watch has counted {counted:,} of {warm + args.count:,}")
        watch.stop()
        if not counted:
            sys.exit("it has seen nothing, so this says nothing")
    folder.cleanup()
    if growth > args.allowed:
        sys.exit(f"{kind}: it grew by {growth:.1f} MiB, and {args.allowed:g} MiB are allowed")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    kinds = [*HOST, *TENSORS, *MADE, "cupy"]
    parser.add_argument("--kind", nargs="+", choices=kinds, help="default: all that can be here")
    parser.add_argument("--count", type=int, help="leaks of each (default: 3,000,000)")
    parser.add_argument("--bytes", type=int, default=256, help="of each leak")
    parser.add_argument("--every", type=int, default=1, help="leaks for each collection")
    parser.add_argument("--allowed", type=float, default=10, metavar="MIB", help="growth allowed")
    parser.add_argument("--pause", type=float, default=1, help="seconds after the warm-up")
    parser.add_argument("--device", help="where tensors live (default: the host)")
    parser.add_argument("--bare", action="store_true", help="without a watch")
    args = parser.parse_args()
    if not os.path.exists("/proc/self/statm"):
        sys.exit("memory.py reads /proc, which this system has not: run it on Linux")
    if args.count is None:
        args.count = 100_000 if args.kind and set(args.kind) <= set(MADE) else 3_000_000
    if args.kind is not None and len(args.kind) == 1:
        run(args)
        return
    given = [f"--{name}={value}" for name, value in vars(args).items() if name in GIVEN and value]
    failed = []
    for kind in args.kind or available(args.device):
        count = min(args.count, 100_000) if kind in MADE else args.count
        command = [sys.executable, __file__, "--kind", kind, f"--count={count}", *given]
        if subprocess.run(command + ["--bare"] * args.bare, check=False).returncode:
            failed.append(kind)
    if failed:
        sys.exit(f"too much: {', '.join(failed)}")


GIVEN = ("bytes", "every", "allowed", "pause", "device")


def available(device: str | None) -> list[str]:
    """All kinds that can be made here."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return [*HOST, *MADE]
    return [*TENSORS] if device and device != "cpu" else [*HOST, *TENSORS, *MADE]


if __name__ == "__main__":
    main()
