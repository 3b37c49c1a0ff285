"""``cyclescope fix``."""

from __future__ import annotations

import argparse
import os
import shlex
import warnings
from pathlib import Path

from cyclescope import _native
from cyclescope._cli.common import add_json, fail, merged, print_json, read_reports
from cyclescope._cli.output import out, out_bytes, tell
from cyclescope._files import exists, is_folder, why_unreadable
from cyclescope._native import Leak, Patch

DESCRIPTION = """\
Print a patch that removes a reference cycle. No file is changed: pipe the patch to `git apply`.

There is a patch for:

- a lambda, an inner function or a bound method that is an attribute of its own object and is only
  called there
- a caught exception, sys.exc_info() or a frame in a local variable
- `with pytest.raises(...) as e`

A lambda, function or method then holds its object weakly. Code can tell the difference if the
object is gone before the call, or if it copies or pickles the object or reads all its attributes.
Therefore this command reads the file and the files of the project that are connected to it by
imports. It offers no patch if one of them uses the attribute as a value, calls it on an object that
nothing else may hold, names it in a string or a pattern, or contains a word such as `deepcopy`,
`vars` or, for a bound method, `pickle`. There is no patch for a bound method if its class derives
from a library's class. What runs outside these files is not seen: a library that copies or inspects
the object, a plugin, a notebook, a configuration file.

Otherwise the exit status is 1, and the message says why.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "place",
        metavar="FILE:LINE",
        help="the line that a report names, or a JSON report, to list its patches",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--diff", action="store_true", help="print nothing but the patch, as `git apply` reads it"
    )
    add_json(output)


def run(parsed: argparse.Namespace) -> int:
    """Print the patch of a line, or list those of a report."""
    if parsed.place.endswith(".json"):
        if parsed.diff:
            fail(
                parsed,
                f"--diff prints the patch of one line: leave it out, and `cyclescope fix "
                f"{shlex.quote(parsed.place)}` lists the lines that have a patch",
            )
        return _list(parsed)
    name, _, number = parsed.place.rpartition(":")
    if not name or not number.isdecimal():
        fail(parsed, f"give FILE:LINE, such as train.py:31, or a report as JSON: {parsed.place}")
    file = Path(name)
    if (why := why_unreadable(file)) is not None:
        fail(parsed, f"cannot read {why}")
    try:
        patch = _fix(file, number)
        base = _base(file)
        text = _checked(file, base, patch)
    except ValueError as reason:
        if parsed.json:
            print_json({"patch": None, "reason": str(reason)})
            return 1
        tell(f"No patch for {parsed.place}: {reason}.\n{_by_hand()}")
        return 1
    if parsed.json:
        print_json({"patch": _facts(patch, text), "reason": None})
        return 0
    if not parsed.diff:
        out(f"{patch.summary}\n\n{text.decode(errors='replace')}")
        out(
            f"To apply it: cyclescope fix {shlex.quote(parsed.place)} --diff | {_apply(file, base)}"
        )
        return 0
    if _apply(file, base) != GIT_APPLY:
        tell(f"{file} is not in the current folder: apply the patch with {_apply(file, base)}")
    # As bytes: the line ends of the file have to stay as they are.
    out_bytes(text)
    return 0


MAX_DIGITS = 9
"""A line with a longer number is in no file."""

GIT_APPLY = "git apply"


def _fix(file: Path, number: str) -> Patch:
    if len(number.lstrip("0")) > MAX_DIGITS:
        raise ValueError("the file has no such line")
    return _native.fix(file.absolute(), int(number))


def _list(parsed: argparse.Namespace) -> int:
    report = merged(parsed, read_reports(parsed, [parsed.place]))
    if parsed.json:
        print_json(
            {
                "leaks": [
                    {
                        "signature": leak.signature,
                        "advice": leak.advice,
                        "patch": None if leak.patch is None else _facts(leak.patch),
                    }
                    for leak in report.leaks
                ]
            }
        )
    for leak in [] if parsed.json else report.leaks:
        if leak.patch is None:
            out(f"{leak.signature}: there is no patch{_why_none(leak)}. {leak.advice}")
        else:
            place = shlex.quote(f"{leak.patch.file}:{leak.patch.line}")
            out(f"{leak.signature}: {leak.patch.summary}\n    cyclescope fix {place} --diff")
    return 0 if any(leak.patch is not None for leak in report.leaks) else 1


def _why_none(leak: Leak) -> str:
    """The reason why a leak has no patch, as the end of a clause, if it is known by now."""
    if leak.source is None:
        return ", because it is not known which statement made the reference"
    try:
        _fix(Path(leak.source.file), str(leak.source.marked))
    except ValueError as reason:
        return f": {reason}"
    return ""


def _facts(patch: Patch, text: bytes | None = None) -> dict[str, object]:
    """A patch as JSON; with the names of files if it is one that `git apply` reads."""
    return {
        "file": patch.file,
        "line": patch.line,
        "summary": patch.summary,
        "diff": patch.diff if text is None else text.decode(errors="replace"),
    }


def _by_hand() -> str:
    return (
        "Change it by hand: `cyclescope explain` lists the patterns, and what to use instead. "
        "`cyclescope fix --help` says what is patched."
    )


def _checked(file: Path, base: Path, patch: Patch) -> bytes:
    """The patch with its file names, once the changed file compiles."""
    before = file.read_bytes()
    lines = before.split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]] + lines[-1:]
    for edit in reversed(patch.edits):
        first = edit.line - 1
        lines[first : first + edit.removed] = [edit.inserted.encode()]
    for source in (before, b"".join(lines)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(source, file, "exec", dont_inherit=True)
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError(f"the file does not compile ({error})") from None
    name = _name(file, base)
    old, new = _quoted(b"a/" + name), _quoted(b"b/" + name)
    header = b"diff --git %s %s\n--- %s\n+++ %s\n" % (old, new, old, new)
    return header + patch.diff.encode()


def _base(file: Path) -> Path:
    """The folder from which a patch names its file.

    In the current folder, that is the root of the repository that this folder is in: `git apply`
    reads names so, also where the file is in a repository within. Elsewhere it is the file's.
    """
    here = Path.cwd()
    if _below(file, here) is not None:
        return _repository(here) or here
    folder = Path(os.path.realpath(file.parent))
    return _repository(folder) or folder


def _apply(file: Path, base: Path) -> str:
    """The command that applies a patch: Git passes over files outside of the current folder."""
    if _below(file, Path.cwd()) is not None:
        return GIT_APPLY
    return f"git -C {shlex.quote(str(base))} apply"


def _name(file: Path, base: Path) -> bytes:
    """The path of a file from a folder."""
    return os.fsencode((_below(file, base) or Path(file.name)).as_posix())


def _below(file: Path, folder: Path) -> Path | None:
    """The path of a file from a folder that it is in."""
    given = Path(os.path.abspath(file))
    for path in given, Path(os.path.realpath(given.parent)) / given.name:
        if path.is_relative_to(folder):
            return path.relative_to(folder)
    return None


def _repository(folder: Path) -> Path | None:
    """The root of the Git repository that a folder is in."""
    for each in (folder, *folder.parents):
        git = each / ".git"
        # A file in the work tree of another folder's repository, or in a submodule.
        if (exists(git) and not is_folder(git)) or exists(git / "HEAD"):
            return each
    return None


def _quoted(name: bytes) -> bytes:
    """A name as Git quotes it (``quote.c``); most are as they are."""
    if all(byte >= 0x20 and byte not in b'"\\\x7f' for byte in name) and b" " not in name:
        return name
    text = b"".join(
        b"\\%03o" % byte if byte < 0x20 or byte in b'"\\\x7f' else bytes([byte]) for byte in name
    )
    return b'"' + text + b'"'
