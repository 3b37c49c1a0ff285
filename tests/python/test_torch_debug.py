"""The memory of every rank in PyTorch's debug server, while all of them wait in a collective."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cyclescope.integrations import torch_debug
from support import debug_server
from support.processes import python

RANKS = 3


def test_all_ranks_are_on_its_pages_and_in_its_dumps(tmp_path: Path) -> None:
    pages = debug_server.ask(tmp_path, RANKS, "gloo")
    # What each rank had done and collects is as ever.
    assert pages.totals == ["total 3.0 True True"] * RANKS

    lines = re.findall(r"<summary>Rank (\d): (.*)</summary>", pages.memory)
    assert [int(number) for number, _ in lines] == list(range(RANKS))
    for number, line in enumerate(line for _, line in lines):
        assert f"{7 + number}.0 MiB in host memory" in line
        assert f"(rank{number}-" in line
        held = f"1 leak holds {number}.0 MiB in cycles" if number else "no leaks"
        assert held in line
    assert pages.memory.count("self.on_step = lambda: self") >= RANKS - 1
    assert ">Memory</a>" in pages.memory
    assert ">Leaks</a>" in pages.memory

    assert "on_step" in pages.leaks
    assert "rank 1" in pages.leaks
    assert "rank 2" in pages.leaks
    for number in range(RANKS):
        assert f"=== Rank {number} ===" in pages.dump


def test_a_program_that_only_imports_it_ends_as_ever() -> None:
    """PyTorch drops the handler when the interpreter has gone."""
    code = "import cyclescope.integrations.torch_debug as it; vars(it).clear()"
    ended = python("-c", code)
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
