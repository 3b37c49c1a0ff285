"""What is found when a run ends, after the last test that could fail for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import pytest

from cyclescope._pytest.check import CHECK

OUTPUT = "cyclescope"
"""Where a worker of pytest-xdist keeps it for its controller."""


@dataclass
class Found:
    """A leak that no test can fail for any more."""

    report: str
    """As JSON."""
    tests: list[str]
    """The tests that made it, or a sentence if that is not certain."""
    made: str
    """A clause that says which tests made it."""
    message: str
    fails: bool
    """The run is to fail."""


@dataclass
class Ending:
    """The last look of a run, or of one worker of it."""

    found: list[Found] = field(default_factory=list)
    is_missing: bool = False
    """The run ended within a test, so there was no last look."""

    def to_json(self) -> str:
        """For the controller."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Ending:
        """What a worker sent."""
        fields = json.loads(text)
        return cls([Found(**row) for row in fields["found"]], fields["is_missing"])


def release_instances(items: Iterable[pytest.Item]) -> bool:
    """Let go of the instances of test classes; whether there was one of a checked test.

    pytest keeps each until it ends, and with it what a test has stored in ``self``. Of a
    ``TestCase`` it lets go after the test, in this way. Who asks for it later gets a new one.
    """
    released = False
    for item in items:
        if isinstance(item, pytest.Function) and item.cls is not None and CHECK in item.stash:
            # Before pytest 8.2, only the method knows it.
            for name in ("_instance", "_obj"):
                released |= vars(item).pop(name, None) is not None
    return released
