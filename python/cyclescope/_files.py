"""Atomic file writes, and what is said if one fails.

The functions of the system are bound here once. Tests of the program put others in their place
(``mock.patch("pathlib.Path.exists")``), count the calls and have them answer what they like.
"""

from __future__ import annotations

import contextlib
import threading
from errno import EACCES, EISDIR, ENOTDIR
from os import W_OK, X_OK, PathLike, fsencode, fspath, strerror
from os import access as _access
from os import chmod as _chmod
from os import getpid as _getpid
from os import mkdir as _mkdir
from os import readlink as _readlink
from os import replace as _replace
from os import stat as _stat
from os import unlink as _unlink
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG

_open = open


def reason(error: OSError) -> str:
    """Why a file could not be read or written, with its name: ``leaks: Permission denied``."""
    known = error.strerror is not None and error.filename is not None
    return f"{error.filename}: {error.strerror}" if known else str(error)


def folder_named(report_dir: object) -> Path:
    """The folder that a caller names as ``report_dir``.

    Raises:
        TypeError: If that is no path.
        ValueError: If no folder can have that name.
    """
    if not isinstance(report_dir, str | PathLike):
        raise TypeError(f"report_dir must be the path of a folder, not {report_dir!r}")
    path = fspath(report_dir)
    if not isinstance(path, str):
        raise TypeError(f"report_dir must be a path of text, not {path!r}")
    if not path:
        raise ValueError("report_dir is empty: name a folder ('.' is the current one), or none")
    try:
        usable = b"\0" not in fsencode(path)
    except UnicodeError:
        usable = False
    if not usable:
        raise ValueError(f"report_dir must be a name that a folder can have, not {path!r}")
    return Path(path)


def exists(path: Path) -> bool:
    """Whether there is a file or folder of this name."""
    try:
        _stat(path)
    except (OSError, ValueError):
        return False
    return True


def make_folder(folder: Path) -> None:
    """Create a folder, and those around it, unless it exists.

    Raises:
        OSError: If that cannot be done, or a file has the name.
    """
    try:
        _make(folder)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_folder(folder.parent)
        _make(folder)


def _make(folder: Path) -> None:
    try:
        _mkdir(folder)
    except OSError:
        # Some systems refuse a folder that exists for other reasons first.
        with contextlib.suppress(OSError):
            if S_ISDIR(_stat(folder).st_mode):
                return
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically: readers see the whole file or none of it.

    A file that exists keeps its permissions, and a symbolic link stays one: the file that it leads
    to is written. To what is no file, such as a device or a pipe, and to what is open already, as
    ``/dev/stdout`` is, the text is added.

    Raises:
        OSError: If that cannot be done. It names this file.
    """
    try:
        mode = _mode(path)
        if mode is not None and (not S_ISREG(mode) or str(path).startswith(OPEN)):
            _write(path, text, "a")
        else:
            _write_beside(_target(path), text, mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def why_unwritable(path: Path) -> str | None:
    """Why this file cannot be written, as far as that is known without writing; None if it can.

    Its folder need not exist.
    """
    try:
        mode = _mode(path)
        if mode is not None and S_ISDIR(mode):
            return strerror(EISDIR)
        existing = path.parent
        while (mode := _mode(existing)) is None and existing != existing.parent:
            existing = existing.parent
        if mode is not None and not S_ISDIR(mode):
            return strerror(ENOTDIR)
        # A file that is replaced need not be writable itself.
        is_special = str(path).startswith(OPEN)
        return None if is_special or _access(existing, W_OK | X_OK) else strerror(EACCES)
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)


OPEN = ("/dev/", "/proc/")
"""Where systems show what is open as files."""

LINKS = 40
"""A chain of more symbolic links is refused by Linux, too."""


def _target(path: Path) -> Path:
    """What the name leads to. Links in place of its folder do no harm."""
    for _ in range(LINKS):
        try:
            path = path.parent / _readlink(path)
        except OSError:
            break
    return path


def _mode(path: Path) -> int | None:
    try:
        return _stat(path).st_mode
    except FileNotFoundError:
        return None


def _write(path: Path, text: str, how: str) -> None:
    # Names of the program may contain lone surrogates.
    with _open(path, how, encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def _write_beside(path: Path, text: str, mode: int | None) -> None:
    """Write another file in the same folder, and put it in the place of this one."""
    unfinished = path.with_name(f".cyclescope-{_getpid()}-{threading.get_ident()}.part")
    try:
        _write(unfinished, text, "w")
        if mode is not None:
            with contextlib.suppress(OSError):  # Some file systems have no permissions.
                _chmod(unfinished, S_IMODE(mode))
        _replace(unfinished, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            _unlink(unfinished)


def check_writable(folder: Path) -> None:
    """Create a folder for reports, if it does not exist.

    Raises:
        OSError: If files cannot be written there.
    """
    # It imports much, which few programs need.
    import tempfile

    try:
        make_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise type(error)(
            error.errno,
            f"report_dir is not writable ({error.strerror}); "
            "pass another folder, or none to use a temporary one",
            str(folder),
        ) from None
