"""Programs that a watch has done harm to once do under it what they do without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.processes import python

SMALL = Path(__file__).with_name("small.py")
NAMES = re.findall(r"^@program\ndef (\w+)", SMALL.read_text(encoding="utf-8"), re.MULTILINE)


def run(name: str, *options: str) -> tuple[int, str, str]:
    done = python(str(SMALL), name, *options, timeout=120)
    return done.returncode, done.stdout, re.sub("0x[0-9a-f]+", "", done.stderr)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_is_printed(name: str) -> None:
    bare = run(name)
    assert bare[0] == 0, bare[2]
    assert bare[1]
    assert run(name, "--watch") == bare
