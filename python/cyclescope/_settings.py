"""Settings: from ``CYCLESCOPE_*`` environment variables, or else from ``pyproject.toml``."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cyclescope import _log, _native, _off
from cyclescope._devices import Devices, default_devices, device_names
from cyclescope._files import read_bytes, within
from cyclescope._selection import StrPath, ignored_names
from cyclescope._system import absolute, environment, environment_variables, getcwd

PREFIX = "CYCLESCOPE_"


@dataclass(frozen=True)
class Settings:
    """Defaults for arguments that a call leaves out.

    Each setting comes from the environment variable ``CYCLESCOPE_<NAME>`` (lists are separated by
    commas), or else from the table ``[tool.cyclescope]`` in the nearest ``pyproject.toml`` that
    has one.

    ``CYCLESCOPE_OFF`` and ``CYCLESCOPE_SIGNAL`` are not settings. They are read once, when
    cyclescope is imported: the first turns every function off, the second calls
    :func:`on_signal`.

    Attributes:
        devices: Which memory to check; None for accelerators, or all memory if there are none.
        ignore: Leaks to ignore, in addition to those that a call ignores; see
            :func:`warn_tensor_cycles`.
        report_dir: Folder for reports; None for a temporary folder.
        record_history: Have PyTorch record the stack of each GPU allocation.
        every: :func:`step` collects every N steps.
        growth_every: A :class:`LeakMonitor` samples every N steps.
        redact: Leave the program's data and folders out of every report; see
            :func:`warn_tensor_cycles`.
        min_bytes: The watch warns of a leak once it has held this many bytes; None for 1 MiB of
            host memory, or any device memory.
        origins: Where each setting comes from. Settings that are not listed have their default.
    """

    devices: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    report_dir: Path | None = None
    record_history: bool = False
    every: int = 100
    growth_every: int = 10
    redact: bool = False
    min_bytes: int | None = None
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    def devices_or(self, given: Devices | None) -> list[str]:
        """The devices that a call names, or else these settings, or else the default of all."""
        if given is not None:
            return device_names(given)
        return default_devices() if self.devices is None else list(self.devices)


def settings(folder: StrPath | None = None) -> Settings:
    """The settings in effect, validated.

    Environment variables are read on each call, each ``pyproject.toml`` once per process. Once
    ``redact`` is set, it stays in effect for the process; see :func:`warn_tensor_cycles`.

    Args:
        folder: Folder in which the search for ``pyproject.toml`` starts; by default the current
            one. The search continues in its parents.

    Raises:
        ValueError: If a setting is invalid. The message says where it is set and what is allowed.
    """
    try:
        start = getcwd() if folder is None else absolute(folder)
    except FileNotFoundError:
        # The current folder has been removed, which is not an error: no file applies.
        start = ""
    found = _in_force(start, tuple(map(environment, _VARIABLES)))
    if found.redact:
        _native.redact()
    return found


def forget() -> None:
    """Clear the cache, for tests that write settings files."""
    _in_force.cache_clear()


@functools.lru_cache(maxsize=16)
def _in_force(folder: str, variables: tuple[str | None, ...]) -> Settings:
    """The settings, cached by all that they depend on. An error is not cached."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for source in (_from_pyproject(folder), _from_environment()):
        for name, (value, origin) in source.items():
            values[name] = value
            origins[name] = origin
    return Settings(**values, origins=origins)


# Reading

_Found = dict[str, tuple[Any, str]]


def _from_environment() -> _Found:
    found: _Found = {}
    for variable, text in sorted(environment_variables()):
        if not variable.startswith(PREFIX) or variable in _READ_AT_IMPORT:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in _READERS:
            _say_unknown_variable(variable)
        elif text.strip():
            found[name] = (_read(name, _from_text(name, text), variable), variable)
    return found


def _from_text(name: str, text: str) -> object:
    if name in ("devices", "ignore"):
        return [part.strip() for part in text.split(",") if part.strip()]
    if name in ("record_history", "redact"):
        return {"1": True, "true": True, "yes": True, "on": True}.get(
            text.strip().lower(),
            False if text.strip().lower() in ("0", "false", "no", "off") else text,
        )
    if name in ("every", "growth_every", "min_bytes"):
        return int(text) if text.strip().isdecimal() else text
    return text


def _from_pyproject(folder: str) -> _Found:
    file, table = _table(Path(folder)) if folder else (Path(), {})
    found: _Found = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        origin = f"[tool.cyclescope] of {file}"
        if name not in _READERS:
            raise ValueError(f"{origin}: unknown setting {key!r}; {_known(name, _READERS)}")
        setting = _read(name, value, f"{key} in {origin}")
        found[name] = (file.parent / setting if name == "report_dir" else setting, origin)
    return found


def _table(folder: Path) -> tuple[Path, dict[str, Any]]:
    """``[tool.cyclescope]`` of the nearest ``pyproject.toml`` that has it."""
    for parent in (folder, *folder.parents):
        file = within(parent, "pyproject.toml")
        try:
            content = read_bytes(file)
        except OSError:
            continue
        # Do not import the parser for files without settings of cyclescope.
        if b"tool.cyclescope" in content or (b"[tool]" in content and b"cyclescope" in content):
            table = _parse(file, content).get("tool", {}).get("cyclescope")
            if isinstance(table, dict):
                return file, table
            if table is not None:
                raise ValueError(f"{file}: tool.cyclescope must be a table, not {table!r}")
    return folder, {}


def _parse(file: Path, content: bytes) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        try:
            import tomli as toml  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise ValueError(
                f"{file} has settings for cyclescope, but Python 3.10 cannot read TOML: "
                "pip install tomli, or set CYCLESCOPE_* environment variables instead"
            ) from None
    try:
        parsed: dict[str, Any] = toml.loads(content.decode())
    except ValueError as error:
        raise ValueError(f"{file} is not valid TOML: {error}") from None
    return parsed


# Validation


def _read(name: str, value: object, where: str) -> Any:
    try:
        return _READERS[name](value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _devices(value: object) -> tuple[str, ...]:
    return tuple(device_names(value))


def _ignore(value: object) -> tuple[str, ...]:
    return tuple(ignored_names(value))


def _report_dir(value: object) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError(f"report_dir must be the path of a folder, not {value!r}")
    return Path(value)


def _record_history(value: object) -> bool:
    return _bool("record_history", value)


def _redact(value: object) -> bool:
    return _bool("redact", value)


def _bool(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {value!r}")
    return value


def _min_bytes(value: object) -> int:
    number = _whole(value)
    if number is None or number < 0:
        raise ValueError(f"min_bytes must be a number of bytes, 0 or more, not {value!r}")
    return min(number, sys.maxsize)


def _every(value: object) -> int:
    return _steps("every", value)


def _growth_every(value: object) -> int:
    return _steps("growth_every", value)


def _steps(name: str, value: object) -> int:
    number = _whole(value)
    if number is None or number < 1:
        raise ValueError(f"{name} must be a positive number of steps, not {value!r}")
    return number


def _whole(value: object) -> int | None:
    """An integer, also one of NumPy's; None for anything else, and for true and false."""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


_READERS: dict[str, Callable[[object], Any]] = {
    "devices": _devices,
    "ignore": _ignore,
    "report_dir": _report_dir,
    "record_history": _record_history,
    "every": _every,
    "growth_every": _growth_every,
    "redact": _redact,
    "min_bytes": _min_bytes,
}
_VARIABLES = tuple(f"{PREFIX}{name.upper()}" for name in _READERS)
_READ_AT_IMPORT = (_off.VARIABLE, "CYCLESCOPE_SIGNAL")


def check_every(value: object) -> int:
    """Validate a number of steps.

    Raises:
        ValueError: If it is not a positive integer.
    """
    return _every(value)


def check_min_bytes(value: object) -> int:
    """Validate a number of bytes.

    Raises:
        ValueError: If it is not a number from 0 on.
    """
    return _min_bytes(value)


def check_number(name: str, value: object, *, at_most: float | None = None) -> float:
    """Validate a positive number.

    Raises:
        ValueError: If it is not a number, not positive, or too large.
    """
    limit = "a positive number" if at_most is None else f"more than 0 and at most {at_most:g}"
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise ValueError(f"{name} must be {limit}, not {value!r}{_as_number(value)}")
    number = float(value)
    if not 0 < number <= (float("inf") if at_most is None else at_most):
        is_percent = at_most == 1 and 2 <= number <= 100
        meant = f"; did you mean {number / 100:g}?" if is_percent else ""
        raise ValueError(f"{name} must be {limit}, not {value!r}{meant}")
    return number


def _as_number(value: object) -> str:
    try:
        return f"; did you mean {float(value):g}?" if isinstance(value, str) else ""
    except ValueError:
        return ""


def _known(name: str, names: Collection[str], prefix: str = "") -> str:
    from cyclescope._suggest import nearest

    near = nearest(name, names)
    if near is not None:
        return f"did you mean {prefix + near!r}?"
    return f"the settings are {', '.join(prefix + each for each in names)}"


_said: set[str] = set()


def _say_unknown_variable(variable: str) -> None:
    # A later version may know the variable, so it is not an error.
    if not _off.OFF and variable not in _said:
        _said.add(variable)
        names = [each.removeprefix(PREFIX) for each in (*_VARIABLES, *_READ_AT_IMPORT)]
        sentence = _known(variable.removeprefix(PREFIX), names, PREFIX)
        _log.warning("the environment variable %s has no effect: %s", variable, sentence)
