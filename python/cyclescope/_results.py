"""Results for other tools: SARIF for code scanning, annotations for GitHub."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclescope import _native
from cyclescope._native import CycleReport, Leak, Patch
from cyclescope._selection import StrPath
from cyclescope._system import absolute, environment

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
UNKNOWN = "tensor-cycle"
"""The rule ID of leaks that match no pattern."""


@dataclass(frozen=True)
class Place:
    """A line of a file."""

    file: Path
    """Relative to the base folder if inside it, otherwise absolute."""
    line: int | None

    @property
    def uri(self) -> str:
        """The file as a URI reference."""
        if self.file.is_absolute():
            return self.file.as_uri()
        from urllib.parse import quote

        return quote(self.file.as_posix())


def sources(base: StrPath | None) -> Path:
    """The source root: ``base``, or else GitHub's workspace, or else the current folder."""
    return Path(absolute(base or environment("GITHUB_WORKSPACE") or os.curdir))


def place_of(leak: Leak, base: Path) -> Place | None:
    """The line to change: where the source makes the first cut, or else the nearest known line."""
    nearest = leak.library.your_line if leak.library is not None else None
    if nearest is None and leak.source is not None:
        nearest = f"{leak.source.file}:{leak.source.marked}"
    cuts = [cut.location for cut in leak.cuts]
    steps = [step.location for step in leak.cycle]
    for location in (nearest, *cuts, *steps):
        if location is not None:
            return _place(location, base)
    return None


def _place(location: str, base: Path) -> Place:
    file, _, number = location.rpartition(":")
    line: int | None = None
    if file and number.isdecimal():
        line = int(number)
    else:
        file = location
    # Compared as text, because the report may come from another machine.
    base_path = os.fspath(base)
    path = os.path.normpath(os.path.join(base_path, file))
    for root in (base_path, os.path.realpath(base_path)):
        # Of a root that is a link, Python often names the files by where that leads.
        if path.startswith(root.rstrip(os.sep) + os.sep):
            return Place(Path(os.path.relpath(path, root)), line)
    return Place(Path(path), line)


def to_sarif(report: CycleReport | None, *, base: StrPath | None = None) -> str:
    """The leaks as SARIF 2.1.0 for code scanning: one result per leak, at the line to change.

    Args:
        report: The report; None if nothing was found.
        base: The source root, to which paths are relative; by default ``$GITHUB_WORKSPACE``, or
            else the current folder.

    Raises:
        TypeError: If ``report`` is something else.
    """
    import json

    if report is not None and not isinstance(report, CycleReport):
        raise TypeError(f"report must be a CycleReport or None, not {report!r}")
    base = sources(base)
    leaks = [] if report is None else report.leaks
    rules = sorted({leak.pattern or UNKNOWN for leak in leaks})
    # Without a URI, readers use a root of their own.
    root = {} if _native.redacts() else {"SRCROOT": {"uri": f"{base.as_uri().removesuffix('/')}/"}}
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "cyclescope",
                        "rules": [_rule(name) for name in rules],
                    }
                },
                "originalUriBaseIds": root,
                "results": [_result(leak, rules, base) for leak in leaks],
            }
        ],
    }
    return json.dumps(log, indent=2) + "\n"


def _rule(name: str) -> dict[str, Any]:
    page = dict(_native.patterns()).get(name)
    if page is None:
        text = "A reference cycle keeps a tensor alive until the garbage collector runs"
        return {"id": name, "shortDescription": {"text": text}}
    heading, _, rest = page.partition("\n")
    return {
        "id": name,
        "shortDescription": {"text": heading.removeprefix("# ")},
        "help": {"text": rest.strip(), "markdown": page},
    }


def _result(leak: Leak, rules: list[str], base: Path) -> dict[str, Any]:
    rule = leak.pattern or UNKNOWN
    result: dict[str, Any] = {
        "ruleId": rule,
        "ruleIndex": rules.index(rule),
        "level": "warning",
        "message": {"text": message(leak)},
        "partialFingerprints": {"cyclescopeSignature/v1": leak.signature},
    }
    place = place_of(leak, base)
    if place is not None:
        result["locations"] = [_location(place)]
    steps = [
        _location(_place(step.location, base)) | {"message": {"text": f"{step.label} {step.edge}"}}
        for step in leak.cycle
        if step.location is not None
    ]
    if leak.patch is not None:
        result["fixes"] = [_fix(leak.patch, base)]
    if steps:
        result["relatedLocations"] = [step | {"id": i} for i, step in enumerate(steps)]
    return result


def _fix(patch: Patch, base: Path) -> dict[str, Any]:
    """The patch as a SARIF ``fix``: whole lines, so that columns need no unit."""
    replacements = [
        {
            "deletedRegion": {
                "startLine": edit.line,
                "startColumn": 1,
                "endLine": edit.line + edit.removed,
                "endColumn": 1,
            },
            "insertedContent": {"text": edit.inserted},
        }
        for edit in patch.edits
    ]
    artifact = _artifact(_place(f"{patch.file}:{patch.line}", base))
    change = {"artifactLocation": artifact, "replacements": replacements}
    return {"description": {"text": patch.summary}, "artifactChanges": [change]}


def _artifact(place: Place) -> dict[str, Any]:
    artifact: dict[str, Any] = {"uri": place.uri}
    if not place.file.is_absolute():
        artifact["uriBaseId"] = "SRCROOT"
    return artifact


def _location(place: Place) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": _artifact(place)}
    if place.line:
        physical["region"] = {"startLine": place.line}
    return {"physicalLocation": physical}


def message(leak: Leak) -> str:
    """The leak and its advice, in a few sentences."""
    return f"{leak}. {leak.advice}".strip()


def to_github_annotations(
    report: CycleReport | None, *, base: StrPath | None = None, known: Collection[str] = ()
) -> list[str]:
    """The leaks as GitHub workflow commands, which annotate the lines to change.

    Print each on its own line.

    Args:
        report: The report; None if nothing was found.
        base: The source root; see :func:`to_sarif`.
        known: Signatures of known leaks, which become notices instead of warnings.

    Raises:
        TypeError: If ``known`` is not a collection of signatures.
    """
    if isinstance(known, (str, bytes)) or not isinstance(known, Collection):
        raise TypeError(f"known must be a collection of signatures, not {known!r}")
    base = sources(base)
    leaks = [] if report is None else report.leaks
    return [_annotation(leak, base, known=leak.signature in known) for leak in leaks]


def _annotation(leak: Leak, base: Path, *, known: bool) -> str:
    properties: dict[str, str] = {}
    place = place_of(leak, base)
    if place is not None:
        properties["file"] = place.file.as_posix()
        if place.line:
            properties["line"] = str(place.line)
    properties["title"] = "A reference cycle keeps a tensor alive"
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{'notice' if known else 'warning'} {listed}::{_data(message(leak))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
