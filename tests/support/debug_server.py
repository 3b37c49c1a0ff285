"""Ranks that wait in a collective, with PyTorch's debug server on the first of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

SECONDS = 120.0

RANK = """
import gc, os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch.distributed import debug
from torch.distributed.debug import start_debug_server
from torch.distributed.debug._debug_handlers import default_handlers
import cyclescope
from cyclescope.integrations.torch_debug import MemoryHandler

class Trainer:
    def __init__(self, size, device):
        self.weights = torch.ones(size, device=device)
        self.on_step = lambda: self

def main():
    folder, port, backend = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    device = "cpu"
    if backend == "nccl":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    rank = dist.get_rank()
    start_debug_server(
        port=port,
        start_method="spawn",
        handlers=[*default_handlers(), MemoryHandler()],
        dump_dir=str(folder / "dumps"),
        dump_interval=1.0,
        enabled_dumps={"cyclescope"},
    )
    dist.barrier()
    gc.collect()
    gc.disable()
    if rank:
        Trainer(rank << 18, device)
    model = torch.ones(7 << 18, device=device)
    if rank == 1:
        while not (folder / "go").exists():
            time.sleep(0.05)
    total = torch.ones(1, device=device) * rank
    dist.all_reduce(total)
    total = total.item()  # the others wait here
    young = gc.get_count()[0]
    print("total", total, young > 0, gc.collect() > 0 or rank == 0)
    # While a handler in Python answers, PyTorch's server cannot be stopped, and to end the process
    # aborts it (docs/training.md): so the process that asks ends first, then each rank at once.
    if rank == 0:
        debug._DEBUG_SERVER_PROC.terminate()
        debug._DEBUG_SERVER_PROC.join()
    sys.stdout.flush()
    dist.barrier()
    os._exit(0)

if __name__ == "__main__":
    main()
"""
"""Each rank holds 7 MiB, and in a cycle as many MiB as its number."""


@dataclass
class Pages:
    """What the server said while the ranks waited, and how they ended."""

    memory: str
    leaks: str
    dump: str
    totals: list[str]


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as it:
        it.bind(("", 0))
        port: int = it.getsockname()[1]
        return port


def page(port: int, path: str) -> str:
    """What the server says, once it is there."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/{path}", timeout=SECONDS) as it:
                text: str = it.read().decode()
                return text
        except urllib.error.HTTPError as error:
            if time.monotonic() > until:
                raise AssertionError(error.read().decode()) from error
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(0.2)


def ask(folder: Path, ranks: int, backend: str) -> Pages:
    """Starts the ranks, asks the server while they wait, and lets them go on."""
    port = free_port()
    (folder / "rank.py").write_text(RANK, "utf-8")
    shared = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(folder / "rank.py"), str(folder), str(port), backend],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        memory, until = "", time.monotonic() + SECONDS
        while memory.count("1 leak holds") < ranks - 1 and time.monotonic() < until:
            memory = page(port, "cyclescope")
        leaks = page(port, "cyclescope_leaks")
        dumps: list[Path] = []
        while not dumps and time.monotonic() < until:
            dumps = sorted((folder / "dumps").glob("cyclescope_*.txt"))
            time.sleep(0.1)
        (folder / "go").touch()
        ended = [process.communicate(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * ranks, ended
    totals = [out.strip().splitlines()[-1] for out, _ in ended]
    return Pages(memory, leaks, dumps[0].read_text("utf-8"), totals)
