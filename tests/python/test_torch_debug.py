"""The memory of every rank in PyTorch's debug server, while all of them wait in a collective."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cyclescope.integrations import torch_debug

RANKS = 3
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
    def __init__(self, size):
        self.weights = torch.ones(size)
        self.on_step = lambda: self

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(sys.argv[1])
    start_debug_server(
        port=int(sys.argv[2]),
        start_method="spawn",
        handlers=[*default_handlers(), MemoryHandler()],
        dump_dir=str(folder / "dumps"),
        dump_interval=1.0,
        enabled_dumps={"cyclescope"},
    )
    gc.collect()
    gc.disable()
    if rank:
        Trainer(rank << 18)
    model = torch.ones(7 << 18)
    if rank == 1:
        while not (folder / "go").exists():
            time.sleep(0.05)
    total = torch.ones(1) * rank
    dist.all_reduce(total)  # the others wait here
    young = gc.get_count()[0]
    print("total", total.item(), young > 0, gc.collect() > 0 or rank == 0)
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


def free_port() -> int:
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


@pytest.fixture
def port(tmp_path: Path) -> int:
    return free_port()


def test_all_ranks_are_on_its_pages_and_in_its_dumps(tmp_path: Path, port: int) -> None:
    (tmp_path / "rank.py").write_text(RANK, "utf-8")
    shared = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(RANKS),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(tmp_path / "rank.py"), str(tmp_path), str(port)]
    ranks = [
        subprocess.Popen(
            command,
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        memory, until = "", time.monotonic() + SECONDS
        while memory.count("1 leaks hold") < RANKS - 1 and time.monotonic() < until:
            memory = page(port, "cyclescope")
        leaks = page(port, "cyclescope_leaks")
        dumps: list[Path] = []
        while not dumps and time.monotonic() < until:
            dumps = sorted((tmp_path / "dumps").glob("cyclescope_*.txt"))
            time.sleep(0.1)
        (tmp_path / "go").touch()
        ended = [rank.communicate(timeout=SECONDS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * RANKS, ended
    # What each rank had done and collects is as ever.
    totals = [out.strip().splitlines()[-1] for out, _ in ended]
    assert totals == ["total 3.0 True True"] * RANKS, ended

    lines = re.findall(r"<summary>Rank (\d): (.*)</summary>", memory)
    assert [int(number) for number, _ in lines] == list(range(RANKS))
    for number, line in enumerate(line for _, line in lines):
        assert f"{7 + number}.0 MiB in host memory" in line
        assert f"(rank{number}-" in line
        held = f"1 leaks hold {number}.0 MiB in cycles" if number else "no leaks"
        assert held in line
    assert memory.count("self.on_step = lambda: self") >= RANKS - 1
    assert ">Memory</a>" in memory
    assert ">Leaks</a>" in memory

    assert "on_step" in leaks
    assert "rank 1" in leaks
    assert "rank 2" in leaks
    dumped = dumps[0].read_text("utf-8")
    for number in range(RANKS):
        assert f"=== Rank {number} ===" in dumped


def test_a_program_that_only_imports_it_ends_as_ever() -> None:
    """PyTorch drops the handler when the interpreter has gone."""
    code = "import cyclescope.integrations.torch_debug as it; vars(it).clear()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_rank_that_cannot_look_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Response:
        content = status = None

        def set_content(self, text: str, kind: str) -> None:
            self.content = text

        def set_status(self, status: int) -> None:
            self.status = status

    def fail() -> None:
        raise SystemExit("no memory")

    monkeypatch.setattr(torch_debug, "look", fail)
    response = Response()
    torch_debug._answer(None, response)
    assert response.status == 200
    assert "no memory" in str(response.content)
