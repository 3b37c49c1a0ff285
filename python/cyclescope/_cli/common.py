"""Shared by the commands: reading reports, writing results, colour."""

from __future__ import annotations

import argparse
import codecs
import glob
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from cyclescope import _native
from cyclescope._cli import progress
from cyclescope._cli.output import out, tell
from cyclescope._cli.repeated import Content, distinct
from cyclescope._files import exists, is_folder, why_unreadable, write_whole
from cyclescope._native import CycleReport
from cyclescope._results import to_sarif


def version() -> str:
    """The version of this package."""
    return _native.__version__


def fail(parsed: argparse.Namespace, message: str) -> NoReturn:
    """Exit with status 2 and an error message."""
    parser: argparse.ArgumentParser = parsed.parser
    progress.done()
    tell(f"{parser.prog}: error: {message}")
    parser.exit(2)


def read_reports(
    parsed: argparse.Namespace,
    names: Iterable[str],
    output: str | None = None,
    unreadable: list[Path] | None = None,
) -> list[CycleReport]:
    """Read reports from files. A name may be a folder or a glob such as ``'reports/*.json'``.

    Reports whose leaks others have too are left out, and so is, of a folder or a glob, the file
    that the command is to write. Where there are several files, those that cannot be read are
    named and added to ``unreadable``; without it, the command fails at the first.
    """
    files = [file for name in names for file in _files(parsed, name, output)]
    reports, contents, read = [], [], []
    for number, file in enumerate(files, 1):
        progress.say(f"reading {number} of {len(files)}: {file}")
        try:
            report, text = _read(file)
        except _LiveMemory as why:
            if len(files) == 1:
                fail(parsed, f"{why}; open its .html or .txt")
            progress.done()
            tell(f"left out: {why}")
            continue
        except _Unreadable as why:
            if len(files) == 1 or unreadable is None:
                fail(parsed, str(why))
            progress.done()
            tell(f"left out: {why}")
            unreadable.append(file)
            continue
        reports.append(report)
        read.append(file)
        if len(files) > 1:
            contents.append(Content(text))
    if len(reports) < 2:
        return reports
    kept, overlapping = distinct(contents)
    if overlapping is not None:
        progress.done()
        one, other, words = overlapping
        tell(f"{read[one]} and {read[other]} {words}")
    return [reports[number] for number in kept]


class _LiveMemory(Exception):
    """The file is another report of cyclescope's. The message says so."""


class _Unreadable(Exception):
    """The file cannot be read, or is no report. The message says why."""


INCOMPLETE = 2
"""The exit status of a command whose result is without the files that cannot be read."""

STANDARD = "-"
"""The name of standard input, or output, in place of a file's."""


def _files(parsed: argparse.Namespace, name: str, output: str | None) -> list[Path]:
    if name == STANDARD:
        return [Path(STANDARD)]
    if not name:
        fail(parsed, "the name of a report is empty: name a file or folder (. is the current one)")
    pattern = name
    if is_folder(Path(name)):
        if (why := why_unreadable(Path(name))) is not None:
            fail(parsed, f"cannot read {why}")
        pattern, name = str(Path(glob.escape(name)) / "*.json"), str(Path(name) / "*.json")
    elif not glob.has_magic(name) or exists(Path(name)):
        return [Path(name)]
    found = [Path(file) for file in sorted(glob.glob(pattern, recursive=True))]
    # To read a pipe would wait for ever.
    found = [file for file in found if not file.is_fifo()]
    found = [file for file in found if output is None or not _same(file, output)]
    if not found:
        fail(parsed, f"no file matches {name}")
    return found


def _same(file: Path, output: str) -> bool:
    try:
        return file.samefile(output)
    except OSError:
        return False


SCHEMA = 1
"""The version of the JSON that commands print (``docs/schema/``)."""

MAX_BYTES = 64 << 20
"""The maximum size of a report (`MAX_BYTES` in the Rust reader); no more of a file is read."""


def _read(file: Path) -> tuple[CycleReport, str]:
    try:
        if file == Path(STANDARD):
            if sys.stdin is None:
                raise _Unreadable("cannot read standard input: it is closed")
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with file.open("rb") as stream:
                content = stream.read(MAX_BYTES + 1)
        # PowerShell writes UTF-16, and editors of Windows a mark at the beginning.
        is_utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = content.decode("utf-16" if is_utf_16 else "utf-8-sig")
        return CycleReport.from_json(text), text
    except OSError as error:
        raise _Unreadable(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        hint = ", not the page" if file.suffix == ".html" else ""
        name = "standard input" if file == Path(STANDARD) else file
        if isinstance(error, UnicodeDecodeError):
            raise _Unreadable(
                f"{name}: this is not text: pass the .json file of a cyclescope report"
            ) from None
        if _is_of_live_memory(text):
            raise _LiveMemory(
                f"{name}: this is a report of live memory, not of reference cycles"
            ) from None
        raise _Unreadable(f"{name}: {error}{hint}") from None


LIVE = ("process", "kind", "by")
"""What reports of live memory have: heaps and changes, growth and post-mortems, tables."""


def _is_of_live_memory(text: str) -> bool:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return False
    is_ours = isinstance(content, dict) and content.get("schema") == SCHEMA
    return is_ours and "tool" not in content and not content.keys().isdisjoint(LIVE)


FORMATS: dict[str, Callable[[CycleReport], str]] = {
    ".html": CycleReport.to_html,
    ".json": CycleReport.to_json,
    ".txt": str,
    ".md": CycleReport.to_markdown,
    ".svg": CycleReport.to_svg,
    ".dot": CycleReport.to_dot,
    ".sarif": to_sarif,
}
"""The function that writes a report, by file extension."""


def add_format(parser: argparse.ArgumentParser, default: str, *, json_too: bool = True) -> None:
    """Declare the options for outputs that have no file extension."""
    parser.add_argument(
        "--format",
        choices=[extension.removeprefix(".") for extension in FORMATS],
        help=f"format of the output (default: that of the file extension; {default})",
    )
    if json_too:
        parser.add_argument(
            "--json",
            action="store_const",
            dest="format",
            const="json",
            help="same as --format json",
        )


def add_json(parser: argparse._ActionsContainer) -> None:
    """Declare the option of commands whose result is no report."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def print_json(result: Mapping[str, object]) -> None:
    """Print a result as JSON, with the version of its form."""
    progress.done()
    out(json.dumps({"schema": SCHEMA, **result}, indent=2))


def check_output(parsed: argparse.Namespace, output: str | None) -> None:
    """Reject an unknown file extension before any work is done."""
    if output == "":
        fail(parsed, "the name of the output file is empty")
    known = parsed.format is not None or output in (None, STANDARD)
    if output is not None and not known and Path(output).suffix not in FORMATS:
        fail(
            parsed,
            f"unknown format: {output}; the extension must be {', '.join(FORMATS)}, or give "
            "--format",
        )


def rendered(parsed: argparse.Namespace, output: str, report: CycleReport) -> str:
    """The report in the format that was asked for; JSON on standard output."""
    suffix = ".json" if output == STANDARD else Path(output).suffix
    return FORMATS[suffix if parsed.format is None else f".{parsed.format}"](report)


def write(parsed: argparse.Namespace, output: str, text: str) -> None:
    """Write a file atomically, or to standard output."""
    if output == STANDARD:
        progress.done()
        out(text.removesuffix("\n"))
        return
    progress.say(f"writing {output}")
    why = try_to_write(output, text)
    if why is not None:
        fail(parsed, why)
    progress.done()


def try_to_write(output: str, text: str, folder: Path = Path()) -> str | None:
    """Write a file atomically. A sentence if that cannot be done."""
    path = folder / output
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        return f"cannot write {output}: {error.strerror}"
    return None


def merged(
    parsed: argparse.Namespace,
    reports: list[CycleReport],
    merge: Callable[[list[CycleReport]], CycleReport] = _native.merge,
) -> CycleReport:
    """One report of all."""
    if not reports:
        fail(parsed, "no reports found")
    if len(reports) > 1:
        progress.say(f"merging {len(reports)} reports")
    return merge(reports)


def shows_color() -> bool:
    """True if standard output is a terminal, unless ``NO_COLOR`` or ``FORCE_COLOR`` is set."""
    if os.environ.get("NO_COLOR") or os.environ.get("FORCE_COLOR"):
        return not os.environ.get("NO_COLOR")
    is_plain = sys.stdout is None or os.environ.get("TERM", "dumb") == "dumb"
    return not is_plain and sys.stdout.isatty()


def colored(text: str, code: str) -> str:
    """The text in a terminal colour, such as ``31`` for red; unchanged where colours are off."""
    return f"\x1b[{code}m{text}\x1b[0m" if shows_color() else text
