"""Report files from elsewhere: refused with a sentence, or read, and never without end."""

from __future__ import annotations

import gc
import json
import os
import subprocess
from pathlib import Path

import pytest

import cyclescope
from support.nodes import Node
from support.processes import python


@pytest.fixture(scope="module")
def good() -> str:
    gc.collect()
    Node()
    return cyclescope.find_tensor_cycles(devices="any").to_json()


def read(file: Path | str) -> subprocess.CompletedProcess[str]:
    return python("-m", "cyclescope", "report", str(file), timeout=60)


def refused(file: Path | str) -> str:
    """The one sentence that says why."""
    done = read(file)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if "error:" in line]
    assert str(file) in sentence
    return sentence


def test_a_good_one_is_read(tmp_path: Path, good: str) -> None:
    file = tmp_path / "report.json"
    file.write_text(good, encoding="utf-8")
    done = read(file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Node.me" in done.stdout


def test_a_huge_one_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "huge.json"
    with file.open("wb") as stream:
        stream.truncate(2**40)
    # Read to its end, it would take hours and all memory: `read` waits for a minute.
    assert "more than the" in refused(file)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="this system has no endless file")
def test_an_endless_one_is_not_read() -> None:
    assert "more than the" in refused("/dev/zero")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\x89PNG", "this is not text"),
        (b"\xff\xfe", "not JSON"),
        (b'{"schema": 2}', "upgrade"),
        (b"[" * 1_000_000, "not"),
        (b'{"schema": 1, "later": ' + b'{"x": ' * 200_000, "not JSON"),
        (b"", "not JSON"),
    ],
    ids=["no text", "an empty one of Windows", "newer", "deep", "deep within", "empty"],
)
def test_what_is_none_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(content)
    assert sentence in refused(file)


def test_its_texts_do_not_act(tmp_path: Path, good: str) -> None:
    """Neither a terminal nor a page acts on what a file says that a program's names were."""
    model = json.loads(good)
    attack = "\x1b]0;title\x07\x1b[2J</script><script>alert(1)</script>\r\nforged"

    def attacked(value: object) -> object:
        if isinstance(value, dict):
            return {
                # Words that are not text: those stand for something.
                key: one if key in ("kind", "role", "schema") else attacked(one)
                for key, one in value.items()
            }
        if isinstance(value, list):
            return [attacked(one) for one in value]
        return attack if isinstance(value, str) else value

    file = tmp_path / "report.json"
    file.write_text(json.dumps(attacked(model)), encoding="utf-8")
    done = read(file)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    page = cyclescope.CycleReport.from_json(file.read_text(encoding="utf-8")).to_html()
    assert "<script>alert" not in page
