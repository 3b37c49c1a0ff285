"""However often ``warn_tensor_cycles`` is called, each leak is told once, as asked last."""

from __future__ import annotations

import gc
import json
import logging
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cyclescope
from cyclescope import CycleReport, Watch, _reporter, _teller
from cyclescope._warner import running_warner
from support.nodes import Node

pytestmark = pytest.mark.usefixtures("collector_paused")

CASES = 40


def kind(number: int) -> type[Node]:
    """A class of its own, so that its leak is one of its own."""
    return type(f"Kind{number}", (Node,), {})


KINDS = [kind(number) for number in range(4)]


def leak(*classes: type[Node]) -> None:
    for each in classes:
        each()
        gc.collect()


def signature(of: type[Node]) -> str:
    of()
    (found,) = cyclescope.find_tensor_cycles(devices="cpu").leaks
    return found.signature


@pytest.fixture(scope="module")
def signatures() -> list[str]:
    gc.collect()
    return [signature(each) for each in KINDS]


@pytest.fixture(autouse=True)
def none_is_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO)
    yield
    while (watch := running_warner()) is not None:
        watch.stop()


def warn(folder: Path, **arguments: object) -> Watch:
    return cyclescope.warn_tensor_cycles(
        **{"devices": "cpu", "report_dir": folder, **arguments}  # type: ignore[arg-type]
    )


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The signatures of the leaks that were told, in order."""
    facts = [getattr(record, "cyclescope", {}) for record in caplog.records]
    return [each["signature"] for each in facts if each.get("event") == "leak"]


def notices(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "called again" in text]


def test_equal_arguments_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, signatures: list[str]
) -> None:
    watch = warn(tmp_path)
    leak(KINDS[0])
    again = warn(tmp_path, devices=["cpu"])
    assert again is watch
    leak(KINDS[0], KINDS[1])
    assert watch.flush(30)
    assert told(caplog) == signatures[:2]
    assert notices(caplog) == []
    assert sorted(tally.count for tally in watch.leaks) == [1, 2]
    again.stop()
    assert not watch.is_running
    assert len(list(tmp_path.glob("*.html"))) == 2
    assert len(list(tmp_path.glob("*.json"))) == 1
    leak(KINDS[2])
    assert told(caplog) == signatures[:2]


def test_several_values_that_change_are_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with warn(tmp_path), warn(tmp_path / "other", ignore=["torch"]):
        (notice,) = notices(caplog)
    assert "with other values of ignore and report_dir, which apply from now on." in notice


def test_what_is_ignored_later_is_told_and_counted_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, signatures: list[str]
) -> None:
    watch = warn(tmp_path)
    leak(KINDS[0], KINDS[1])
    assert watch.flush(30)
    assert warn(tmp_path, ignore=signatures[:1]) is watch
    leak(*KINDS[:3])
    assert watch.flush(30)
    assert told(caplog) == signatures[:3]
    (notice,) = notices(caplog)
    assert "another value of ignore, which applies from now on." in notice
    assert {tally.signature: tally.count for tally in watch.leaks} == {
        signatures[1]: 2,
        signatures[2]: 1,
    }
    watch.stop()
    report = watch.report
    assert report is not None
    assert {each.signature for each in report.leaks} == set(signatures[1:3])
    # By its pattern too, which is all the same.
    caplog.clear()
    watch = warn(tmp_path)
    leak(KINDS[0])
    assert watch.flush(30)
    warn(tmp_path, ignore=["refers-to-itself"])
    leak(*KINDS)
    assert watch.flush(30)
    assert (told(caplog), watch.leaks) == (signatures[:1], [])


def test_other_devices_and_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, signatures: list[str]
) -> None:
    watch = warn(tmp_path, min_bytes=2 * 2**20)
    leak(KINDS[0])
    warn(tmp_path, min_bytes=0)
    leak(KINDS[0])
    assert watch.flush(30)
    assert told(caplog) == signatures[:1]
    warn(tmp_path, min_bytes=0, devices="cuda:3")
    leak(KINDS[1])
    assert watch.flush(30)
    assert told(caplog) == signatures[:1]
    assert "devices" in notices(caplog)[-1]


def test_another_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, signatures: list[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    watch = warn(old)
    leak(KINDS[0])
    assert watch.flush(30)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="report_dir is not writable"):
        warn(tmp_path / "file" / "x", ignore=signatures)
    leak(KINDS[1])
    assert watch.flush(30)
    warn(new)
    leak(KINDS[2])
    watch.stop()
    assert told(caplog) == signatures[:3]
    assert len(list(old.glob("*.html"))) == 2
    assert len(list(new.glob("*.html"))) == 1
    (file,) = new.glob("*.json")
    assert len(CycleReport.from_json(file.read_text(encoding="utf-8")).leaks) == 3


def test_a_block_leaves_the_watch_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, signatures: list[str]
) -> None:
    watch = warn(tmp_path)
    with warn(tmp_path, ignore=signatures[:1]) as inner, warn(tmp_path, ignore=signatures[:2]):
        assert inner is watch
        leak(*KINDS[:2])
    assert watch.is_running
    leak(KINDS[0])
    assert watch.flush(30)
    assert told(caplog) == signatures[:1]
    watch.stop()
    with warn(tmp_path) as alone:
        assert alone is not watch
    assert not alone.is_running


def test_a_folder_is_the_same_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    warn(Path("leaks"))
    warn(tmp_path / "leaks")
    warn(tmp_path / "x" / ".." / "leaks")
    assert notices(caplog) == []


@pytest.mark.parametrize("seed", range(CASES))
def test_random_programs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, signatures: list[str], seed: int
) -> None:
    """Calls, blocks and leaks in any order, against a model of what is to be told."""
    pick = random.Random(seed)
    calls: list[frozenset[int]] = []
    blocks: list[Watch] = []
    before: set[int] = set()
    expected: list[str] = []
    for _ in range(16):
        action = pick.choice(["leak"] * 6 + ["call", "enter", "leave", "stop"])
        if action == "leak":
            number = pick.randrange(len(KINDS))
            leak(KINDS[number])
            if calls and number not in calls[-1] and number not in before:
                before.add(number)
                expected.append(signatures[number])
        elif action in ("call", "enter"):
            ignored = frozenset(pick.sample(range(len(KINDS)), pick.randrange(3)))
            watch = warn(tmp_path, ignore=[signatures[number] for number in ignored])
            # What is not ignored any more is told anew.
            calls.append(ignored)
            before -= ignored
            if action == "enter":
                blocks.append(watch.__enter__())
        elif action == "leave" and blocks:
            watch = blocks.pop()
            was_running = watch.is_running
            watch.__exit__(None, None, None)
            if was_running:
                calls.pop()
                before = before - calls[-1] if calls else set()
        elif action == "stop" and calls:
            running = running_warner()
            assert running is not None
            running.stop()
            calls, before = [], set()
    running = running_warner()
    assert (running is not None) is bool(calls)
    if running is not None:
        assert running.flush(30)
    assert told(caplog) == expected, (seed, sys.version)


def test_the_file_of_all_leaks_follows_the_counts_while_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_teller, "REFRESH_SECONDS", 0.0)
    watch = warn(tmp_path)
    leak(KINDS[0])
    assert watch.flush()
    (file,) = tmp_path.glob("*.json")
    leak(*[KINDS[0]] * 3)
    deadline = time.monotonic() + 60
    while (counts := occurrences(file)) != [1] * 4:
        assert time.monotonic() < deadline, counts
        time.sleep(0.05)
    assert watch.report is not None
    assert [len(it["occurrences"]) for it in json.loads(watch.report.to_json())["leaks"]] == [4]
    # A file that was moved away stays away, until the end.
    file.unlink()
    leak(KINDS[0])
    time.sleep(2.5)
    assert list(tmp_path.glob("*.json")) == []
    watch.stop()
    assert occurrences(file) == [1] * 5


def occurrences(file: Path) -> list[int]:
    """How many cycles each collection freed, of the only leak in a file."""
    (found,) = json.loads(file.read_text("utf-8"))["leaks"]
    return [each["count"] for each in found["occurrences"]]


def test_a_large_file_of_all_leaks_is_left_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_teller, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(_reporter, "MAX_REFRESHED", 0)
    watch = warn(tmp_path)
    leak(KINDS[0])
    assert watch.flush()
    (file,) = tmp_path.glob("*.json")
    leak(KINDS[0])
    time.sleep(2.5)
    assert occurrences(file) == [1]
    watch.stop()
    assert occurrences(file) == [1, 1]


def test_a_watch_takes_the_name_of_one_device() -> None:
    with cyclescope.Watch("any", lambda report: None, once_per_leak=True) as watch:
        assert watch.is_running
    with pytest.raises(ValueError, match="'any' for all memory"):
        cyclescope.Watch("anything", lambda report: None, once_per_leak=True)


def test_a_new_folder_has_what_was_found_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_teller, "REFRESH_SECONDS", 0.05)
    watch = warn(tmp_path / "first")
    leak(KINDS[0])
    assert watch.flush(60)
    warn(tmp_path / "second")
    leak(KINDS[0], KINDS[0])
    deadline = time.monotonic() + 60
    while not (files := list((tmp_path / "second").glob("*.json"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (found,) = CycleReport.from_json(files[0].read_text("utf-8")).leaks
    assert found.count >= 1
