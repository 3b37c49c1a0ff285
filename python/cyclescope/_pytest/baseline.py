"""The baseline: known leaks of a code base, which fail no test."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cyclescope._files import make_folder, write_whole

if TYPE_CHECKING:
    from cyclescope._native import Leak

SCHEMA = 1
CREATE = "create one with --tensor-cycles-update-baseline"


class Baseline:
    """A file of signatures, each with a one-line description."""

    def __init__(self, file: Path, leaks: dict[str, str], outlines: dict[str, str]) -> None:
        self.file = file
        self.leaks = leaks
        """The one-line cycle of each leak, by signature."""
        self._outlines = {signature: outlines.get(signature) for signature in leaks}
        """The outline of each leak, by signature; None if it has none."""

    @classmethod
    def read(cls, file: Path, *, updates: bool) -> Baseline:
        """Read a baseline file. If it is to be updated, it may be missing or empty.

        Raises:
            FileNotFoundError: If the file does not exist and is not to be updated.
            ValueError: If the file is not a baseline.
        """
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            if updates:
                return cls(file, {}, {})
            raise FileNotFoundError(f"no baseline file {file}; {CREATE}") from None
        if updates and not content.strip():
            return cls(file, {}, {})
        try:
            found = json.loads(content.decode("utf-8"))
            if found["schema"] <= SCHEMA:
                return cls(file, _texts(found["leaks"]), _texts(found.get("outlines", {})))
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
            way_out = "name another file, or delete this one" if updates else CREATE
            raise ValueError(f"{file} is not a baseline; {way_out}") from None
        raise ValueError(
            f"the baseline {file} was written by a newer version of cyclescope; upgrade cyclescope"
        )

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

    def update(self, leaks: Iterable[Leak]) -> tuple[int, int]:
        """Add leaks, in place of those that have moved.

        Returns:
            How many were new, and how many entries were replaced.

        Raises:
            OSError: If the file cannot be written. The baseline is as before.
        """
        found = list(leaks)
        moved = self.moved(found)
        new = {leak.signature for leak in found} - self.leaks.keys() - moved.keys()
        gone = set(moved.values())
        listed = {it: line for it, line in self.leaks.items() if it not in gone}
        listed |= {leak.signature: leak.summary for leak in found}
        outlines = self._outlines | {leak.signature: leak.outline for leak in found}
        content = {
            "schema": SCHEMA,
            "leaks": dict(sorted(listed.items())),
            "outlines": {it: outlines[it] for it in sorted(listed) if outlines[it]},
        }
        make_folder(self.file.parent)
        write_whole(self.file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        self.leaks, self._outlines = listed, outlines
        return len(new), len(moved)


def _texts(read: dict[object, object]) -> dict[str, str]:
    return {str(key): str(value) for key, value in read.items()}
