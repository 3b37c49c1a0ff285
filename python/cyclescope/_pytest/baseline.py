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
        self._outlines = {signature: outlines.get(signature) for signature in leaks}
        """The outline of each leak, by signature; None if it has none."""

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
            return cls(file, _texts(found["leaks"]), _texts(found.get("outlines", {})))
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError):
            raise ValueError(
                f"{file} is not a baseline; create one with --tensor-cycles-update-baseline"
            ) from None

    def __contains__(self, signature: str) -> bool:
        return signature in self.leaks

    def unseen(self, seen: Iterable[str]) -> list[str]:
        """The signatures in the baseline that are not in ``seen``."""
        return sorted(self.leaks.keys() - set(seen))

    def moved(self, leaks: Iterable[Leak]) -> dict[str, str]:
        """Leaks that are not listed, each with a listed one that was not found and has other lines.

        It is the same leak if code above its functions was added or removed. It may as well be a
        new one, next to one that is mended or was not run.
        """
        found = list(leaks)
        missing = self.unseen(leak.signature for leak in found)
        pairs: dict[str, str] = {}
        for leak in found:
            if leak.signature in self.leaks or leak.outline is None:
                continue
            before = next((it for it in missing if self._outlines[it] == leak.outline), None)
            if before is not None:
                missing.remove(before)
                pairs[leak.signature] = before
        return pairs

    def update(self, leaks: Iterable[Leak]) -> int:
        """Add leaks, in place of those that have moved, and return how many were new."""
        found = list(leaks)
        moved = self.moved(found)
        new = {leak.signature for leak in found} - self.leaks.keys() - moved.keys()
        for before in moved.values():
            del self.leaks[before]
        for leak in found:
            self.leaks[leak.signature] = leak.summary
            self._outlines[leak.signature] = leak.outline
        outlines = {it: self._outlines[it] for it in sorted(self.leaks) if self._outlines[it]}
        content = {
            "schema": SCHEMA,
            "leaks": dict(sorted(self.leaks.items())),
            "outlines": outlines,
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return len(new)


def _texts(read: dict[object, object]) -> dict[str, str]:
    return {str(key): str(value) for key, value in read.items()}
