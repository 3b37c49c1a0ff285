"""Atomic file writes, and what is said if one fails.

None of this calls ``pathlib``'s methods that ask the system: see :mod:`cyclescope._system`.
"""

from __future__ import annotations

import contextlib
from errno import EACCES, EISDIR, ENOENT, ENOTDIR
from os import W_OK, X_OK, PathLike, scandir, strerror
from os import name as os_name
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG

from cyclescope import _system
from cyclescope._imported import imported
from cyclescope._system import absolute, environment, fsencode, fspath, join, open_file


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


def within(folder: str | PathLike[str], name: str) -> Path:
    """As ``folder / name``, whose text ``pathlib`` makes with ``os.path.join``."""
    return Path(join(fspath(folder), name))


def exists(path: Path) -> bool:
    """Whether there is a file or folder of this name."""
    try:
        _system.stat(path)
    except (OSError, ValueError):
        return False
    return True


def is_folder(path: Path) -> bool:
    """Whether there is a folder of this name; unlike ``Path.is_dir``, False also without access."""
    try:
        return S_ISDIR(_system.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def why_unreadable(path: Path) -> str | None:
    """Why a file cannot be read, or a folder cannot be listed; None if it can."""
    try:
        mode = _system.stat(path).st_mode
        if S_ISDIR(mode):
            scandir(path).close()
        elif S_ISREG(mode):
            open_file(path, "rb").close()
    except (OSError, ValueError) as error:
        return reason(error) if isinstance(error, OSError) else str(error)
    return None


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        OSError: If it cannot be read.
    """
    with open_file(path, "rb") as file:
        content: bytes = file.read()
    return content


def temporary_folder() -> Path:
    """Create a folder for temporary files, which only this user can read.

    Raises:
        OSError: If none can be created.
    """
    chosen = imported("tempfile", "tempdir")
    variables = (environment(name) for name in ("TMPDIR", "TEMP", "TMP"))
    named = [name for name in (chosen, *variables) if isinstance(name, str) and name]
    for parent in (*named, *TEMPORARY, "."):
        with contextlib.suppress(OSError):
            folder = within(absolute(parent), f"cyclescope-{_unique()}")
            _system.mkdir(folder, 0o700)
            return folder
    raise OSError(ENOENT, "there is no folder for temporary files")


def _unique() -> str:
    return _system.urandom(8).hex()


TEMPORARY = (r"C:\TEMP", r"C:\TMP") if os_name == "nt" else ("/tmp", "/var/tmp", "/usr/tmp")
"""Where temporary files are, if no environment variable says it; see ``tempfile``."""


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
        _system.mkdir(folder)
    except OSError:
        # Some systems refuse a folder that exists for other reasons first.
        with contextlib.suppress(OSError):
            if S_ISDIR(_system.stat(folder).st_mode):
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
        if is_stream(path):
            _write(path, text, "a")
        else:
            _write_beside(_target(path), text, _mode(path))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def is_stream(path: Path) -> bool:
    """True for what is no file, such as a device or a pipe, and for what is open already.

    Raises:
        OSError: If that is not known.
    """
    mode = _mode(path)
    return mode is not None and (not S_ISREG(mode) or str(path).startswith(OPEN))


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
        return None if is_special or _system.access(existing, W_OK | X_OK) else strerror(EACCES)
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
            path = within(path.parent, _system.readlink(path))
        except OSError:
            break
    return path


def _mode(path: Path) -> int | None:
    try:
        return _system.stat(path).st_mode
    except FileNotFoundError:
        return None


def _write(path: Path, text: str, how: str) -> None:
    # Names of the program may contain lone surrogates.
    with open_file(path, how, encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def _write_beside(path: Path, text: str, mode: int | None) -> None:
    """Write another file in the same folder, and put it in the place of this one."""
    unfinished = path.with_name(f".cyclescope-{_system.getpid()}-{_system.get_ident()}.part")
    try:
        _write(unfinished, text, "w")
        if mode is not None:
            with contextlib.suppress(OSError):  # Some file systems have no permissions.
                _system.chmod(unfinished, S_IMODE(mode))
        _system.replace(unfinished, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            _system.unlink(unfinished)


def check_writable(folder: Path) -> None:
    """Create a folder for reports, if it does not exist.

    Raises:
        OSError: If files cannot be written there.
    """
    try:
        make_folder(folder)
        trial = within(folder, f".cyclescope-{_unique()}.part")
        _write(trial, "", "x")
        _system.unlink(trial)
    except OSError as error:
        is_file = isinstance(error, (FileExistsError, NotADirectoryError))
        why = "it or a folder above it is a file" if is_file else error.strerror
        raise type(error)(
            error.errno,
            f"report_dir is not writable ({why}); "
            "pass another folder, or none to use a temporary one",
            str(folder),
        ) from None
