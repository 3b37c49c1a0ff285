"""The public functions, as a program uses them."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import textwrap
import threading
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

import cyclescope
from support.nodes import SOURCE, Node
from support.processes import python


class Other(Node):
    """Makes the same cycle under another name."""


pytestmark = pytest.mark.usefixtures("collector_paused")


def leak(kind: type[Node] = Node, mib: int = 1) -> None:
    kind(mib)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "cyclescope"]


def test_a_leak_is_warned_of_once_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with cyclescope.warn_tensor_cycles(devices="any", report_dir=tmp_path) as watch:
        for _ in range(3):
            leak()
            gc.collect()
        leak(Other, 2)
        gc.collect()
        assert watch.flush(60)
        seen = watch.leaks
    first, second = warnings_of(caplog)
    assert "1.0 MiB" in first
    assert "Node.me" in first
    assert "2.0 MiB" in second
    assert "Other.me" in second
    pages = sorted(tmp_path.glob("*.html"))
    assert len(list(tmp_path.glob("*.json"))) == 1
    assert len(pages) == 2
    assert all(str(page) in first + second for page in pages)
    assert all("<!DOCTYPE html>" in page.read_text(encoding="utf-8") for page in pages)
    assert [(tally.count, tally.bytes >> 20, tally.largest >> 20) for tally in seen] == [
        (3, 3, 1),
        (1, 2, 2),
    ]
    assert watch.leaks == seen
    (file,) = tmp_path.glob("*.json")
    trace = " ".join(str(cyclescope.CycleReport.from_json(file.read_text())).split())
    assert "Seen: 3 times in 3 collections, 3.0 MiB in total, from 20" in trace
    assert trace.count("Seen: ") == 1
    leak()
    gc.collect()
    assert len(warnings_of(caplog)) == 2


def test_an_observer_is_told_of_every_collection_that_frees_a_leak() -> None:
    reports: list[cyclescope.CycleReport] = []
    watch = cyclescope.observe_tensor_cycles(reports.append, devices="any")
    for count in (1, 2, 3):
        for _ in range(count):
            leak()
        gc.collect()
    gc.collect()
    watch.stop()
    watch.stop()
    assert [report.leaks[0].count for report in reports] == [1, 2, 3]
    assert len({report.leaks[0].signature for report in reports}) == 1
    leak()
    gc.collect()
    assert len(reports) == 3


def test_a_watch_may_be_stopped_by_its_own_callback() -> None:
    reports: list[cyclescope.CycleReport] = []

    def once(report: cyclescope.CycleReport) -> None:
        reports.append(report)
        watch.stop()

    watch = cyclescope.observe_tensor_cycles(once, devices="any")
    leak()
    gc.collect()
    watch.stop()
    leak()
    gc.collect()
    assert len(reports) == 1
    assert not [c for c in gc.callbacks if "cyclescope" in repr(c)]


def test_several_watches_each_get_what_they_asked_for() -> None:
    everything: list[cyclescope.CycleReport] = []
    gpus: list[cyclescope.CycleReport] = []
    with (
        cyclescope.observe_tensor_cycles(everything.append, devices="any"),
        cyclescope.observe_tensor_cycles(gpus.append, devices=["cuda:0", "cuda:1"]),
        cyclescope.observe_tensor_cycles(everything.append, devices=["cpu"]),
    ):
        leak()
        gc.collect()
    assert len(everything) == 2
    assert gpus == []


def test_a_callback_that_raises_is_logged_once_and_stays(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def broken(report: cyclescope.CycleReport) -> None:
        calls.append(report)
        raise RuntimeError("the callback's own trouble")

    with cyclescope.observe_tensor_cycles(broken, devices="any"):
        for _ in range(3):
            leak()
            gc.collect()
    assert len(calls) == 3
    (record,) = [r for r in caplog.records if r.name == "cyclescope"]
    assert record.levelno == logging.ERROR
    assert "the callback's own trouble" in caplog.text


def test_a_callback_may_collect_and_look() -> None:
    found: list[cyclescope.CycleReport] = []

    def look(report: cyclescope.CycleReport) -> None:
        gc.collect()
        found.append(cyclescope.find_tensor_cycles(devices="any"))

    with cyclescope.observe_tensor_cycles(look, devices="any") as watch:
        leak()
        gc.collect()
        assert watch.flush(60)
    assert [report.leaks for report in found] == [[]]


def test_a_callback_that_blocks_does_not_stop_the_program() -> None:
    """The lock that the program holds while a collection happens is one that the callback wants."""
    lock = threading.Lock()
    told = threading.Event()

    def wants_the_lock(report: cyclescope.CycleReport) -> None:
        with lock:
            told.set()

    with cyclescope.observe_tensor_cycles(wants_the_lock, devices="any"):
        with lock:
            leak()
            gc.collect()
            assert not told.is_set()
        assert told.wait(60)


def test_a_log_handler_that_raises_harms_nobody() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no space left")

    logger = logging.getLogger("cyclescope")
    handler = Broken()
    logger.addHandler(handler)
    try:
        with cyclescope.warn_tensor_cycles(devices="any") as watch:
            leak()
            gc.collect()
            leak(Other)
            gc.collect()
    finally:
        logger.removeHandler(handler)
    assert len(watch.leaks) == 2


def test_renderings() -> None:
    leak()
    report = cyclescope.find_tensor_cycles(devices="any")
    assert "Node" in str(report)
    assert "~~~ cut here" in str(report)
    assert report.to_html().startswith("<!DOCTYPE html>")
    assert "digraph" in report.to_dot()
    assert xml.etree.ElementTree.fromstring(report.to_svg()).tag.endswith("svg")
    assert report._repr_html_().startswith("<iframe")
    model = json.loads(report.to_json())
    assert model["schema"] == 1
    assert model["leaks"][0]["bytes_held"] == 2**20
    again = cyclescope.CycleReport.from_json(report.to_json())
    assert again.to_json() == report.to_json()
    assert str(again) == str(report)
    assert repr(report) == "<CycleReport: 1 leak, 1.0 MiB>"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("", "JSON"), ("[1, 2]", "report"), ('{"schema": 99}', "99"), ("{" * 100_000, "JSON")],
)
def test_what_is_no_report_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        cyclescope.CycleReport.from_json(text)


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'"gpus" is not a device'):
        cyclescope.warn_tensor_cycles(devices="gpus")
    with pytest.raises(ValueError, match="empty"):
        cyclescope.find_tensor_cycles(devices=[])
    with pytest.raises(TypeError, match="devices"):
        cyclescope.find_tensor_cycles(devices=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callback"):
        cyclescope.observe_tensor_cycles("print")  # type: ignore[arg-type]
    taken = tmp_path / "file"
    taken.touch()
    with pytest.raises(OSError, match=r"report_dir.*file"):
        cyclescope.warn_tensor_cycles(devices="any", report_dir=taken)
    assert not [c for c in gc.callbacks if "cyclescope" in repr(c)]


def test_warnings_go_on_where_pages_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "pages"
    with cyclescope.warn_tensor_cycles(devices="any", report_dir=folder) as watch:
        folder.rmdir()
        folder.touch()  # a file is in the way now
        leak()
        gc.collect()
        leak(Other)
        gc.collect()
        assert watch.flush(60)
    levels = [r.levelno for r in caplog.records if r.name == "cyclescope"]
    assert sorted(levels) == [logging.WARNING, logging.WARNING, logging.ERROR]
    assert str(folder) in caplog.text


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    head = "import gc, numpy, cyclescope\ngc.disable()\n"
    return python("-c", head + textwrap.dedent(program), *arguments)


def test_the_end_of_the_program_sums_up() -> None:
    end = run(
        SOURCE
        + """
cyclescope.warn_tensor_cycles(devices="any")
for _ in range(5):
    Node()
    gc.collect()
"""
    )
    assert (end.returncode, end.stdout) == (0, "")
    warned, _, _ = end.stderr.partition("1 leak, seen 5 times:")
    assert "\n  Page: " in warned
    assert "5 × Node.me → Node" in end.stderr
    assert "5.0 MiB in total, at most 1.0 MiB at once" in end.stderr


def test_garbage_that_no_collection_reached_is_reported_at_the_end() -> None:
    end = run(SOURCE + "cyclescope.warn_tensor_cycles(devices='any')\nNode()\n")
    assert end.returncode == 0
    assert "1 × Node.me → Node" in end.stderr


def test_a_program_without_leaks_says_nothing() -> None:
    end = run("cyclescope.warn_tensor_cycles(devices='any')\ngc.collect()\n")
    assert (end.returncode, end.stdout, end.stderr) == (0, "", "")


def test_a_callback_that_never_returns_does_not_hold_up_the_end() -> None:
    end = run(
        SOURCE
        + """
import cyclescope._teller, threading
cyclescope._teller.EXIT_SECONDS = 0.2
cyclescope.observe_tensor_cycles(lambda report: threading.Event().wait(), devices="any")
Node()
gc.collect()
print("done")
"""
    )
    assert (end.returncode, end.stdout) == (0, "done\n")


def test_a_watch_raises_no_audit_events() -> None:
    end = run(
        SOURCE
        + """
import sys
def audit(event, arguments):
    if event.startswith("gc."):
        raise RuntimeError(event)
with cyclescope.observe_tensor_cycles(print, devices="any"):
    sys.addaudithook(audit)
    for _ in range(3):
        Node()
        gc.collect()
print(len(gc.garbage), gc.get_debug())
"""
    )
    assert end.returncode == 0
    assert end.stdout.splitlines()[-1] == "0 0"
    assert end.stdout.count("LEAK 1 of 1") == 3
    assert end.stderr == ""


@pytest.mark.parametrize("name", ["", "\0", "a\ud800", b"folder", 5])
@pytest.mark.parametrize(
    "function", [cyclescope.warn_tensor_cycles, cyclescope.on_oom, cyclescope.on_signal]
)
def test_what_is_no_folder_is_refused(function: Any, name: object) -> None:
    with pytest.raises((TypeError, ValueError), match="report_dir"):
        function(report_dir=name)


def test_what_is_no_name_of_a_page_is_refused() -> None:
    with pytest.raises(TypeError, match="as a string, not 5"):
        cyclescope.explain(5)  # type: ignore[arg-type]
