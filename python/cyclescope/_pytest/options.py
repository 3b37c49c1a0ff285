"""Options of pytest's command line and configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from cyclescope._files import make_folder, reason, temporary_folder

if TYPE_CHECKING:
    from cyclescope._native import CycleReport
    from cyclescope._pytest.baseline import Baseline

MODES = ("off", "report", "error")
SCOPES = ("new", "whole")


@dataclass
class Choices:
    """The options of this pytest run."""

    mode: str | None
    """``off``, ``report`` or ``error``; None to check marked tests only."""
    devices: list[str]
    ignore: list[str]
    whole: bool
    """Each check looks at the whole heap."""
    baseline: Baseline | None
    update_baseline: bool
    json: Path | None
    sarif: Path | None
    config: pytest.Config
    given_report_dir: Path | None
    shown: dict[str, CycleReport] = field(default_factory=dict, init=False)
    """What the page of each signature is to show."""
    outdated: set[str] = field(default_factory=set, init=False)
    """Signatures of the pages that show less than that."""
    _report_dir: Path | None = field(default=None, init=False)

    @property
    def report_dir(self) -> Path:
        """The folder for HTML pages, created on first use; by default in pytest's cache."""
        if self._report_dir is None:
            if self.given_report_dir is not None:
                make_folder(self.given_report_dir)
                self._report_dir = self.given_report_dir
            elif (cache := getattr(self.config, "cache", None)) is not None:
                self._report_dir = cache.mkdir("cyclescope")
            else:
                self._report_dir = temporary_folder()
        return self._report_dir


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "": (
        "what to do when a test leaves a tensor in a reference cycle: nothing (off), list the leak "
        "(report) or fail the test (error); default: check only tests marked no_tensor_cycles, or "
        "report if any other of these options is given",
        {"choices": MODES},
    ),
    "-devices": (
        "which memory to check, such as cuda or cuda:0,cpu (default: gpu, or any if there is no "
        "accelerator)",
        {"metavar": "DEVICES"},
    ),
    "-scope": (
        "which objects a check inspects: those that the test made (new, the default; leaks that a "
        "later test causes are found when the module or the run ends), or the whole heap (whole), "
        "which takes several full collections per test",
        {"choices": SCOPES},
    ),
    "-ignore": (
        "ignore leaks with this signature, pattern or library; may be repeated",
        {"metavar": "NAME", "action": "append"},
    ),
    "-baseline": ("file of known leaks, which do not fail tests", {"metavar": "FILE"}),
    "-update-baseline": (
        "add the leaks of this run to the baseline file instead of failing tests",
        {"action": "store_true"},
    ),
    "-report-dir": (
        "folder for the HTML pages (default: a folder in pytest's cache)",
        {"metavar": "DIR"},
    ),
    "-json": ("write all leaks to FILE as one JSON report", {"metavar": "FILE"}),
    "-sarif": ("write all leaks to FILE as SARIF, for code scanning", {"metavar": "FILE"}),
}
"""What follows ``--tensor-cycles`` in the name of each option, its help, and how it is parsed."""

INI_TYPES: dict[str, Literal["linelist", "bool", "args"]] = {
    "-devices": "args",
    "-ignore": "linelist",
    "-update-baseline": "bool",
}
PATHS = ("-baseline", "-report-dir", "-json", "-sarif")


def declare(parser: pytest.Parser) -> None:
    """Declare the command-line options, and for each a setting of the configuration file."""
    group = parser.getgroup("tensor-cycles", "tensors in reference cycles (cyclescope)")
    for name, (text, parsing) in OPTIONS.items():
        option = f"--tensor-cycles{name}"
        group.addoption(option, help=text, **parsing)
        where = ", relative to the rootdir" if name in PATHS else ""
        parser.addini(_ini(name), f"same as {option}{where}", type=INI_TYPES.get(name))


def _ini(name: str) -> str:
    return f"tensor_cycles{name.replace('-', '_')}"


def read(config: pytest.Config) -> Choices:
    """Read and validate the options.

    Raises:
        pytest.UsageError: If an option is invalid.
    """
    from cyclescope._devices import device_names
    from cyclescope._pytest.baseline import Baseline
    from cyclescope._selection import ignored_names
    from cyclescope._settings import settings

    for name in OPTIONS:
        if config.getoption(f"--tensor-cycles{name}") == "":
            # Such as of a variable that is not set. A run that checks nothing would look clean.
            raise pytest.UsageError(
                f"--tensor-cycles{name} is empty: give it a value, or leave it out"
            )
    mode = config.getoption("--tensor-cycles") or _text(config, "") or None
    if mode not in (None, *MODES):
        raise pytest.UsageError(f"tensor_cycles is {mode!r}; it can be {', '.join(MODES)}")
    scope = config.getoption("--tensor-cycles-scope") or _text(config, "-scope")
    if scope and scope not in SCOPES:
        raise pytest.UsageError(
            f"tensor_cycles_scope is {scope!r}; it can be {' or '.join(SCOPES)}"
        )
    devices = config.getoption("--tensor-cycles-devices") or _text(config, "-devices")
    ignore = [
        *config.getini("tensor_cycles_ignore"),
        *(config.getoption("--tensor-cycles-ignore") or ()),
    ]
    update = config.getoption("--tensor-cycles-update-baseline") or config.getini(
        "tensor_cycles_update_baseline"
    )
    file = _path(config, "-baseline")
    if update and file is None:
        raise pytest.UsageError(
            "--tensor-cycles-update-baseline needs a file: give --tensor-cycles-baseline=FILE"
        )
    json, sarif = _path(config, "-json"), _path(config, "-sarif")
    if json is not None and json == sarif:
        raise pytest.UsageError(
            f"--tensor-cycles-json and --tensor-cycles-sarif name the same file: {json}"
        )
    if mode is None and given(config):
        # Who gives an option expects a check, and a file that says "no leaks" would be false.
        mode = "report"
    try:
        configured = settings(config.rootpath)
        chosen = [name.strip() for name in devices.split(",") if name.strip()] if devices else None
        return Choices(
            mode=mode,
            devices=device_names(configured.devices_or(chosen)),
            ignore=[*configured.ignore, *ignored_names(ignore, partial(_warn, config))],
            whole=scope == "whole",
            baseline=None if file is None else Baseline.read(file, updates=update),
            update_baseline=update,
            json=json,
            sarif=sarif,
            config=config,
            given_report_dir=_path(config, "-report-dir") or configured.report_dir,
        )
    except (ValueError, OSError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise pytest.UsageError(f"cyclescope: {why}") from None


def _warn(config: pytest.Config, sentence: str) -> None:
    """Put a sentence among pytest's warnings: it captures what is logged."""
    warning = pytest.PytestConfigWarning(f"cyclescope: {sentence}")
    config.issue_config_time_warning(warning, stacklevel=2)


def given(config: pytest.Config) -> bool:
    """True if any option is given, on the command line or in the configuration."""
    return any(
        config.getoption(f"--tensor-cycles{name}") or config.getini(_ini(name)) for name in OPTIONS
    )


def _text(config: pytest.Config, name: str) -> str:
    """A text from the configuration, where TOML allows anything."""
    configured = config.getini(_ini(name)) or ""
    if name == "-devices":
        return ",".join(configured)
    if not isinstance(configured, str):
        raise pytest.UsageError(f"{_ini(name)} is {configured!r}; it must be a string")
    return configured


def _path(config: pytest.Config, name: str) -> Path | None:
    """A path from the command line, or from the configuration, relative to the rootdir."""
    given: str | None = config.getoption(f"--tensor-cycles{name}")
    if given:
        return config.invocation_params.dir / given
    configured = _text(config, name)
    return config.rootpath / configured if configured else None
