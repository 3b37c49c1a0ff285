"""Ranks, files that never collide, and processes that begin in the middle of others."""

from __future__ import annotations

import json
import os
import pickle
import textwrap
from pathlib import Path

import pytest

import cyclescope
from cyclescope import CycleReport, Rank, current_rank
from support.nodes import SOURCE
from support.processes import python

VARIABLES = [
    *("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    *("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
    *("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
]

HEAD = f"""
import gc, os, sys, numpy, cyclescope
gc.disable()
{SOURCE}
def work(folder, times=3):
    cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)
    for _ in range(times):
        Node()
        gc.collect()
"""


@pytest.fixture(autouse=True)
def no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def run(tmp_path: Path, program: str, **environment: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(HEAD + textwrap.dedent(program), encoding="utf-8")
    done = python(str(file), env=os.environ | environment, timeout=120)
    assert done.returncode == 0, done.stderr


def reports(folder: Path) -> list[CycleReport]:
    files = sorted(folder.glob("*.json"))
    return [CycleReport.from_json(file.read_text(encoding="utf-8")) for file in files]


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, None),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, Rank(3, 1, 8)),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "5", "SLURM_NTASKS": "6"}, Rank(5, 5, 6)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, Rank(2, None, 4)),
        ({"RANK": "0", "SLURM_PROCID": "7"}, Rank(0, None, None)),
        ({"RANK": "none"}, None),
        # `mpirun` in the script of a job of Slurm, whose own rank is 0.
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "OMPI_COMM_WORLD_RANK": "1"},
            Rank(1, None, None),
        ),
        ({"RANK": "3", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}, Rank(3, 1, None)),
        ({"RANK": "5", "WORLD_SIZE": "2"}, Rank(5, None, None)),
    ],
)
def test_the_rank_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: Rank | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert current_rank() == rank


def test_a_rank_can_be_sent_to_other_processes() -> None:
    rank = Rank(3, None, 8)
    assert pickle.loads(pickle.dumps(rank)) == rank
    assert {rank} == {Rank(3, None, 8)}
    assert repr(rank) == "Rank(rank=3, local_rank=None, world_size=8)"


@pytest.mark.parametrize("variable", ["RANK", "SLURM_PROCID"])
def test_every_rendering_has_the_same_rank(tmp_path: Path, variable: str) -> None:
    run(tmp_path, "work(sys.argv[0] + '-leaks')", **{variable: "3"})
    folder = tmp_path / "program.py-leaks"
    (report,) = reports(folder)
    model = json.loads(report.to_json())
    assert model["process"]["rank"] == 3
    assert [once["rank"] for once in model["leaks"][0]["occurrences"]] == [3, 3, 3]
    (page,) = folder.glob("*.html")
    assert page.name.startswith("rank3-") or "-rank3-" in page.name
    assert "<dt>Rank</dt><dd>3</dd>" in page.read_text(encoding="utf-8")
    assert "rank 3" in " ".join(str(report).split())


def test_a_program_that_is_not_distributed_gathers_its_own() -> None:
    report = cyclescope.find_tensor_cycles(devices="any")
    assert cyclescope.gather(report) is report
    assert cyclescope.gather(None) is None


def test_each_process_leaves_one_file_of_all_with_its_counts(tmp_path: Path) -> None:
    for rank in ("0", "1"):
        run(tmp_path, "work(sys.argv[0] + '-leaks')", RANK=rank)
    folder = tmp_path / "program.py-leaks"
    assert sorted(path.suffix for path in folder.iterdir()) == [".html", ".html", ".json", ".json"]
    for number, report in enumerate(reports(folder)):
        assert json.loads(report.to_json())["process"]["rank"] == number
        (leak,) = report.leaks
        assert (leak.count, leak.bytes_held) == (3, 3 * 2**20)
    names = [path.name.partition("-")[0] for path in sorted(folder.glob("*.json"))]
    assert names == ["rank0", "rank1"]


def test_a_number_that_comes_again_overwrites_nothing(tmp_path: Path) -> None:
    """Two watches of one process, as two processes with the same number one after the other."""
    run(
        tmp_path,
        """
        for times in (1, 2):
            watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=sys.argv[0] + "-leaks")
            for _ in range(times):
                Node()
                gc.collect()
            watch.stop()
        """,
    )
    folder = tmp_path / "program.py-leaks"
    assert len(list(folder.glob("*.html"))) == 2
    assert sorted(leak.count for report in reports(folder) for leak in report.leaks) == [1, 2]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_children_are_left_alone_unless_they_ask(tmp_path: Path, method: str) -> None:
    if method not in __import__("multiprocessing").get_all_start_methods():
        pytest.skip(f"this platform cannot {method}")
    run(
        tmp_path,
        f"""
        import multiprocessing

        def silent():
            Node()
            gc.collect()

        if __name__ == "__main__":
            context = multiprocessing.get_context({method!r})
            folder = sys.argv[0] + "-leaks"
            cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)
            children = [context.Process(target=work, args=(folder,)) for _ in range(2)]
            children += [context.Process(target=silent)]
            for child in children:
                child.start()
            for child in children:
                child.join()
                assert child.exitcode == 0, child.exitcode
        """,
    )
    folder = tmp_path / "program.py-leaks"
    found = [leak for report in reports(folder) for leak in report.leaks]
    assert [(leak.count, leak.bytes_held) for leak in found] == [(3, 3 * 2**20)] * 2
    assert len(list(folder.glob("*.html"))) == 2


def test_readers_see_whole_files_only(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import glob, threading
        from cyclescope import CycleReport

        folder = sys.argv[0] + "-leaks"
        done = threading.Event()
        read = []

        def reader():
            while not done.is_set():
                for file in glob.glob(folder + "/*.json"):
                    read.append(CycleReport.from_json(open(file, encoding="utf-8").read()))

        thread = threading.Thread(target=reader)
        thread.start()
        watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)
        for number in range(40):
            type(f"Node{number}", (Node,), {})()
            gc.collect()
        watch.stop()
        done.set()
        thread.join()
        assert read
        assert not glob.glob(folder + "/.*.part")
        """,
    )
