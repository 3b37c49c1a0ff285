"""The baseline: known leaks of a code base, which fail no test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from cyclescope._files import write_whole

SCHEMA = 1


class Baseline:
    """A file of signatures, each with a one-line description."""

    def __init__(self, file: Path, leaks: dict[str, str]) -> None:
        self.file = file
        self.leaks = leaks
        """The one-line cycle of each leak, by signature."""

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
                return cls(file, {})
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
            return cls(file, {str(k): str(v) for k, v in found["leaks"].items()})
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError):
            raise ValueError(
                f"{file} is not a baseline; create one with --tensor-cycles-update-baseline"
            ) from None

    def __contains__(self, signature: str) -> bool:
        return signature in self.leaks

    def unseen(self, seen: Iterable[str]) -> list[str]:
        """The signatures in the baseline that are not in ``seen``."""
        return sorted(self.leaks.keys() - set(seen))

    def add(self, leaks: Mapping[str, str]) -> int:
        """Add leaks, write the file, and return how many were new."""
        new = leaks.keys() - self.leaks.keys()
        self.leaks.update(leaks)
        content = {"schema": SCHEMA, "leaks": dict(sorted(self.leaks.items()))}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return len(new)
