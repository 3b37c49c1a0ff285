"""``cyclescope run``: what it tells of a program's leaks, the files it writes, and its status."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cyclescope import CycleReport
from support import interrupts
from support.command_line import LEAKY, Command, program, report_of

interrupts.hear()


def test_a_program_runs_unchanged_and_its_leaks_are_told(command: Command, tmp_path: Path) -> None:
    program(tmp_path)
    done = command("run", "--devices=any", "leaky.py", "--devices", "x", "-m")
    assert done.returncode == 0
    assert done.stdout == "arguments ['--devices', 'x', '-m']\n"
    assert "held by a reference cycle" in done.stderr
    assert "1 × Node.me → Node" in done.stderr


def test_without_a_driver_host_memory_is_watched(command: Command, tmp_path: Path) -> None:
    program(tmp_path, LEAKY + "import cyclescope._native as n\nprint(n.cuda_driver_present())\n")
    done = command("run", "leaky.py")
    if done.stdout.endswith("False\n"):
        assert "1 × Node.me → Node" in done.stderr


@pytest.mark.parametrize("arguments", [["-c", LEAKY], ["-"]], ids=["-c", "-"])
def test_code_without_a_file_is_watched(
    command: Command, tmp_path: Path, arguments: list[str]
) -> None:
    done = command("run", "--devices=any", "-o", "-", *arguments, input=LEAKY)
    assert "1 × Node.me → Node" in done.stderr
    first, _, report = done.stdout.partition("\n")
    assert first == "arguments []"
    (leak,) = CycleReport.from_json(report).leaks
    assert leak.count == 1
    shown = command("report", "-", input=report)
    assert "LEAK 1 of 1" in shown.stdout
    markdown = command("report", "-", "--format", "md", input=report)
    assert markdown.stdout == leak.to_markdown() + "\n" or "Node" in markdown.stdout
    assert command("diff", "-", "-", input=report).returncode == 2
    assert "standard input: this is not JSON" in command("report", "-", input="x").stderr
    piped = command("merge", "-", "-o", "-", input=report)
    assert CycleReport.from_json(piped.stdout).leaks[0].signature == leak.signature
    command("report", "-", "-o", "page", "--format=html", input=report)
    assert (tmp_path / "page").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_what_threads_leak_after_the_end_counts(command: Command, tmp_path: Path) -> None:
    end = "import threading, time\n"
    end += "threading.Thread(target=lambda: (time.sleep(0.5), Node(2))).start()\n"
    program(tmp_path, LEAKY + end)
    done = command("run", "--devices=any", "leaky.py")
    assert "2 × Node.me → Node" in done.stderr
    assert "3.0 MiB in total" in done.stderr


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("", 0),
        ("sys.exit(7)", 7),
        ("sys.exit()", 0),
        ("sys.exit('a sentence')", 1),
        ("raise ValueError('its own error')", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
    ],
)
def test_the_status_is_the_programs_own(
    command: Command, tmp_path: Path, end: str, status: int
) -> None:
    program(tmp_path, f"{LEAKY}{end}\n")
    done = command("run", "--devices=any", "leaky.py")
    assert done.returncode == status
    assert "1 × Node.me → Node" in done.stderr
    with_check = command("run", "--devices=any", "--fail-on-leak", "leaky.py")
    assert with_check.returncode == (status or 1)


def test_nothing_is_lost_on_ctrl_c(tmp_path: Path) -> None:
    program(tmp_path, LEAKY + "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    running = subprocess.Popen(
        [sys.executable, "-m", "cyclescope", "run", "--devices=any", "-o", "r.json", "leaky.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    while running.stdout.readline() != "ready\n":
        assert running.poll() is None
    time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert "1 × Node.me → Node" in errors
    (leak,) = CycleReport.from_json((tmp_path / "r.json").read_text(encoding="utf-8")).leaks
    assert leak.count == 1


def test_no_leak_is_no_failure(command: Command, tmp_path: Path) -> None:
    program(tmp_path, "print('clean')\n")
    outputs = ("-o", "leaks.sarif", "-o", "leaks.json")
    (tmp_path / "leaks.json").write_text("of an earlier run", encoding="utf-8")
    done = command("run", "--devices=any", "--fail-on-leak", "--trace", *outputs, "leaky.py")
    assert (done.returncode, done.stdout) == (0, "clean\n")
    assert done.stderr == "cyclescope: no leaks\n"
    # What comes next in a CI job finds that nothing was found.
    assert json.loads((tmp_path / "leaks.sarif").read_text())["runs"][0]["results"] == []
    assert CycleReport.from_json((tmp_path / "leaks.json").read_text()).leaks == []
    assert command("diff", "leaks.json", "leaks.json").returncode == 0


def test_an_option_that_the_program_gets_instead_is_said(command: Command, tmp_path: Path) -> None:
    program(tmp_path, "import sys\nassert sys.argv[1:] == ['--fail-on-leak']\n")
    done = command("run", "--devices=any", "leaky.py", "--fail-on-leak")
    assert done.returncode == 0
    said = "cyclescope run: --fail-on-leak follows the program and is passed to it. "
    assert done.stderr.startswith(said)
    program(tmp_path, "")
    done = command("run", "--devices=any", "--fail-on-leak", "leaky.py")
    assert done.stderr == "cyclescope: no leaks\n"


@pytest.mark.parametrize("after", ["", "gc.callbacks[:] = saved"])
def test_collections_that_were_not_seen_are_no_success(
    command: Command, tmp_path: Path, after: str
) -> None:
    clears = "import gc\nsaved = gc.callbacks[:]\ngc.callbacks.clear()\n"
    said = "cyclescope: 1 garbage collection was not seen, because another part of the program "
    program(tmp_path, f"import logging\nlogging.disable()\n{clears}gc.collect()\n{after}")
    for options, status in ([], 0), (["--fail-on-leak"], 2):
        done = command("run", "--devices=any", *options, "leaky.py")
        assert done.returncode == status
        assert done.stderr.startswith(said)
        assert done.stderr.count("\n") == 1
    # What is told at the end is all that there was.
    program(tmp_path, clears + after)
    assert command("run", "--devices=any", "leaky.py").stderr == "cyclescope: no leaks\n"


def test_watching_gpus_where_there_are_none_is_no_success(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    program(tmp_path, "")
    said = "cyclescope: nothing could be found, because only GPU memory is watched and "
    for options, status in ([], 0), (["--fail-on-leak"], 2):
        done = command("run", "--devices=cuda", *options, "leaky.py")
        assert done.returncode == status
        assert (said in done.stderr) == (status == 2)
        assert "no leaks" not in done.stderr


@pytest.mark.parametrize("devices", ["gpu", "mps", "cuda,xpu"])
def test_watching_what_the_machine_lacks_is_no_success(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    program(tmp_path)
    done = command("run", f"--devices={devices}", "--fail-on-leak", "leaky.py")
    assert done.returncode == 2
    assert "cyclescope: nothing could be found" in done.stderr
    assert "no leaks" not in done.stderr
    assert command("run", "--devices=cpu:1", "--fail-on-leak", "leaky.py").returncode == 1


def test_names_of_files_cannot_act_on_the_terminal(command: Command, tmp_path: Path) -> None:
    done = command("report", "\x1b[2J\u202ereport.json")
    assert done.returncode == 2
    assert "\\x1b[2J\\u202ereport.json" in done.stderr


def test_an_empty_name_is_said_to_be_empty(command: Command, tmp_path: Path) -> None:
    program(tmp_path, "")
    assert "the name of the output file is empty" in command("run", "-o", "", "leaky.py").stderr
    assert "'' is not a folder" in command("serve", "").stderr
    assert "--report-dir is empty" in command("demo", "--report-dir", "").stderr
    assert "it is not a file" in command("fix", f"{tmp_path}:1").stderr


def test_json_is_printed_beside_a_file(command: Command, tmp_path: Path) -> None:
    program(tmp_path)
    done = command("run", "--devices=any", "-o", "leaks.sarif", "--json", "leaky.py")
    _, _, report = done.stdout.partition("\n")
    assert len(CycleReport.from_json(report).leaks) == 1
    assert json.loads((tmp_path / "leaks.sarif").read_text())["version"] == "2.1.0"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_report_that_standard_output_does_not_take_is_no_success(
    command: Command, tmp_path: Path
) -> None:
    program(tmp_path, "")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cyclescope", "run", "--json", "leaky.py"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2
    assert "cannot write to standard output" in done.stderr


def test_a_program_may_leave_no_modules_behind(command: Command, tmp_path: Path) -> None:
    program(tmp_path, "import sys\nsys.modules.clear()\nprint('end')\n")
    done = command("run", "--devices=any", "leaky.py")
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="limits its address space as Linux does")
def test_where_memory_is_short_at_the_end_the_program_succeeds(
    command: Command, tmp_path: Path
) -> None:
    short = """
import resource, mmap
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 2**24, -1))
kept = [[] for _ in range(2000)]
"""
    program(tmp_path, LEAKY + short)
    done = command("run", "--devices=any", "-o", "leaks.json", "leaky.py")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "not enough memory to inspect what was garbage at the end" in done.stderr


LARGE = "--min-bytes=100000000"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--devices=cpu", LARGE], "no leaks on cpu except small ones: 1 held "),
        (["--devices=any", LARGE, "--ignore=refers-to-itself"], "no leaks (ignored: refers-to-its"),
        (["--devices=any"], ""),
    ],
)
def test_success_is_said_of_what_was_watched(
    command: Command, tmp_path: Path, arguments: list[str], said: str
) -> None:
    program(tmp_path)
    done = command("run", *arguments, "leaky.py")
    assert ("cyclescope: no leaks" in done.stderr) is bool(said)
    assert said in done.stderr


def test_what_cannot_be_written_keeps_nothing_else_from_being_told(
    command: Command, tmp_path: Path
) -> None:
    outputs = ("-o", "folder.json", "-o", "leaks.json")
    for status, expected in (0, 2), (3, 3):
        folder = "import os\nos.mkdir('folder.json')"
        program(tmp_path, f"{LEAKY}\n{folder}\nraise SystemExit({status})")
        done = command("run", "--devices=any", "--trace", *outputs, "leaky.py")
        assert done.returncode == expected
        assert "cyclescope run: error: cannot write folder.json: " in done.stderr
        assert "LEAK 1 of 1" in done.stdout
        assert len(CycleReport.from_json((tmp_path / "leaks.json").read_text()).leaks) == 1
        (tmp_path / "folder.json").rmdir()


def test_a_program_does_not_begin_if_its_results_cannot_be_written(
    command: Command, tmp_path: Path
) -> None:
    program(tmp_path, "print('begun')")
    (tmp_path / "folder.json").mkdir()
    for output, why in (
        ("folder.json", "Is a directory"),
        ("leaky.py/leaks.json", "Not a directory"),
        ("leaky.py/new/leaks.json", "Not a directory"),
    ):
        done = command("run", "-o", output, "leaky.py")
        assert done.returncode == 2
        assert done.stdout == ""
        assert f"cyclescope run: error: cannot write {output}: {why}" in done.stderr
    assert command("run", "-o", "new/folder/leaks.json", "leaky.py").returncode == 0
    assert (tmp_path / "new/folder/leaks.json").exists()


def test_ranks_do_not_overwrite_each_others_file(command: Command, tmp_path: Path) -> None:
    program(tmp_path)
    for rank in ("0", "1"):
        job = {"RANK": rank, "WORLD_SIZE": "2"}
        assert command("run", "--devices=any", "-o", "all.json", "leaky.py", **job).returncode == 0
    alone = {"RANK": "0", "WORLD_SIZE": "1"}
    assert command("run", "--devices=any", "-o", "one.json", "leaky.py", **alone).returncode == 0
    files = sorted(file.name for file in tmp_path.glob("*.json"))
    assert files == ["all-rank0.json", "all-rank1.json", "one.json"]
    assert "rank 0  rank 1" in command("merge", "all-*.json").stdout
    again = {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "1"}
    assert command("run", "--devices=any", "-o", "all.json", "leaky.py", **again).returncode == 0
    assert (tmp_path / "all-rank1-attempt1.json").exists()


def test_a_rank_writes_to_the_stream_that_it_is_given(command: Command, tmp_path: Path) -> None:
    program(tmp_path)
    job = {"RANK": "1", "WORLD_SIZE": "2"}
    done = command("run", "--devices=any", "--format=json", "-o", "/dev/stdout", "leaky.py", **job)
    assert done.returncode == 0, done.stderr
    assert '"signature":' in done.stdout


def test_the_report_names_the_program(command: Command, tmp_path: Path) -> None:
    model = json.loads(report_of(command, tmp_path).read_text(encoding="utf-8"))
    assert model["process"]["program"] == "leaky.py"


CALLS = """
import cyclescope, sys
watch = cyclescope.warn_tensor_cycles({arguments})
Node()
with cyclescope.warn_tensor_cycles({arguments}):
    Node(2)
watch.stop()
class Late(Node): pass
Late()
"""


@pytest.mark.parametrize("arguments", ["", "devices='any'", "report_dir='own'", "min_bytes=0"])
def test_a_program_that_warns_itself_is_told_each_leak_once(
    command: Command, tmp_path: Path, arguments: str
) -> None:
    program(tmp_path, LEAKY + CALLS.format(arguments=arguments))
    done = command("run", "--devices=any", "-o", "r.json", "leaky.py")
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stderr.split())
    assert words.count("by the cycle Node.me → Node.") == 1
    assert words.count("by the cycle Late.me → Late.") == 1
    assert done.stderr.count("2 leaks, seen ") == 1
    assert "no CUDA driver" not in done.stderr
    found = CycleReport.from_json((tmp_path / "r.json").read_text(encoding="utf-8")).leaks
    assert [leak.count for leak in found] == [3, 1]
    assert "called again" not in done.stderr


def test_the_command_line_comes_first(command: Command, tmp_path: Path) -> None:
    asks = "devices='cuda', report_dir='own', ignore=['closure-captures-owner'], min_bytes=0"
    closure = "class Other(Node):\n    def __init__(self):\n        super().__init__()\n"
    closure += "        self.me = lambda: self\nOther()\n"
    program(tmp_path, LEAKY + CALLS.format(arguments=asks) + closure)
    options = ("--devices=any", "--report-dir=given", "--fail-on-leak")
    done = command("run", *options, "leaky.py", CYCLESCOPE_MIN_BYTES="")
    assert done.returncode == 1
    words = " ".join(done.stderr.split())
    assert "`cyclescope run` gives --devices and --report-dir, which apply" in words
    assert words.count("by the cycle Node.me → Node.") == 1
    assert list((tmp_path / "given").glob("*.html"))
    assert not (tmp_path / "own").exists()
    program(
        tmp_path,
        LEAKY + "import cyclescope\n" + "cyclescope.warn_tensor_cycles("
        "ignore=['refers-to-itself'])\nclass Other(Node): pass\nOther()\n",
    )
    done = command("run", "--devices=any", "-o", "r.json", "leaky.py")
    found = CycleReport.from_json((tmp_path / "r.json").read_text(encoding="utf-8")).leaks
    assert found == []
