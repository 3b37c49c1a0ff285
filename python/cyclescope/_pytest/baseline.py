"""The baseline: known leaks of a code base, which fail no test."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cyclescope._files import write_whole

if TYPE_CHECKING:
    from cyclescope._native import Leak

SCHEMA = 1


class Baseline:
    """A file of signatures, each with a one-line description."""

    def __init__(self, file: Path, leaks: dict[str, str], outlines: dict[str, str]) -> None:
        self.file = file
        self.leaks = leaks
        """The one-line cycle of each leak, by signature."""
        self._outlines = outlines
        """The outline of each leak that has one, by signature."""
        self._moved: dict[str, set[str]] = {}
        """The signatures of leaks that are known only by an outline."""
        self._seen: set[str] = set()

    @classmethod
    def read(cls, file: Path, *, may_be_missing: bool) -> Baseline:
        """Read a baseline file.

        Raises:
            FileNotFoundError: If the file does not exist and ``may_be_missing`` is false.
            ValueError: If the file is not a baseline.
        """
        try:
            content = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            if may_be_missing:
                return cls(file, {}, {})
            raise FileNotFoundError(
                f"no baseline file {file}; create one with --tensor-cycles-update-baseline"
            ) from None
        try:
            found = json.loads(content)
            if found["schema"] > SCHEMA:
                raise ValueError(
                    f"the baseline {file} was written by a newer version of cyclescope; "
                    "upgrade cyclescope"
                )
            leaks, outlines = found["leaks"], found.get("outlines", {})
            return cls(file, _texts(leaks), _texts(outlines))
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError):
            raise ValueError(
                f"{file} is not a baseline; create one with --tensor-cycles-update-baseline"
            ) from None

    def __contains__(self, leak: Leak) -> bool:
        """True for a leak in the baseline, and for one whose functions have moved to other lines.

        The latter have the same outline. Of one outline, as many leaks are known as are listed.
        """
        if leak.signature in self.leaks:
            self._seen.add(leak.signature)
        elif leak.outline is None:
            return False
        moved = self._moved.setdefault(leak.outline, set()) if leak.outline else set()
        room = len(self._unseen_with(leak.outline)) - len(moved - {leak.signature})
        if leak.signature in self.leaks:
            return room >= 0
        if room > 0:
            moved.add(leak.signature)
        return room > 0

    def _unseen_with(self, outline: str | None) -> list[str]:
        """The leaks listed with an outline, but those that were seen by signature."""
        listed = {signature for signature, other in self._outlines.items() if other == outline}
        return sorted(listed - self._seen)

    def unseen(self, leaks: Iterable[Leak]) -> list[str]:
        """The signatures listed of leaks that are not among all that were found."""
        found = sorted(leaks, key=lambda leak: leak.signature not in self.leaks)
        known = [leak for leak in found if leak in self]
        unseen = self.leaks.keys() - {leak.signature for leak in known}
        for outline, moved in self._moved.items():
            unseen -= set(self._unseen_with(outline)[: len(moved)])
        return sorted(unseen)

    def add(self, leaks: Iterable[Leak]) -> int:
        """Add leaks, write the file, and return how many were new."""
        new = [leak for leak in leaks if leak.signature not in self.leaks]
        for leak in leaks:
            self.leaks[leak.signature] = leak.summary
            if leak.outline is not None:
                self._outlines[leak.signature] = leak.outline
        content = {
            "schema": SCHEMA,
            "leaks": dict(sorted(self.leaks.items())),
            "outlines": dict(sorted(self._outlines.items())),
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return len(new)


def _texts(read: dict[object, object]) -> dict[str, str]:
    return {str(key): str(value) for key, value in read.items()}
