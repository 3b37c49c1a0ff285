"""Options of pytest's command line and configuration."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cyclescope._pytest.baseline import Baseline

MODES = ("off", "report", "error")


@dataclass
class Choices:
    """The options of this pytest run."""

    mode: str | None
    """``off``, ``report`` or ``error``; None to check marked tests only."""
    devices: list[str]
    ignore: list[str]
    baseline: Baseline | None
    update_baseline: bool
    json: Path | None
    sarif: Path | None
    config: pytest.Config
    given_report_dir: Path | None
    _report_dir: Path | None = field(default=None, init=False)

    @property
    def report_dir(self) -> Path:
        """The folder for HTML pages, created on first use; by default in pytest's cache."""
        if self._report_dir is None:
            if self.given_report_dir is not None:
                self.given_report_dir.mkdir(parents=True, exist_ok=True)
                self._report_dir = self.given_report_dir
            elif (cache := getattr(self.config, "cache", None)) is not None:
                self._report_dir = cache.mkdir("cyclescope")
            else:
                self._report_dir = Path(tempfile.mkdtemp(prefix="cyclescope-"))
        return self._report_dir


def declare(parser: pytest.Parser) -> None:
    """Declare the command-line options and their configuration settings."""
    group = parser.getgroup("tensor-cycles", "tensors in reference cycles (cyclescope)")
    group.addoption(
        "--tensor-cycles",
        choices=MODES,
        help="what to do when a test leaves a tensor in a reference cycle: nothing (off), list the "
        "leak (report) or fail the test (error); by default, only tests marked no_tensor_cycles "
        "are checked",
    )
    group.addoption(
        "--tensor-cycles-devices",
        metavar="DEVICES",
        help="which memory to check, such as cuda or cuda:0,cpu (default: any)",
    )
    group.addoption(
        "--tensor-cycles-baseline",
        metavar="FILE",
        help="file of known leaks, which fail no test",
    )
    group.addoption(
        "--tensor-cycles-update-baseline",
        action="store_true",
        help="add the leaks of this run to the baseline file instead of failing tests",
    )
    group.addoption(
        "--tensor-cycles-report-dir",
        metavar="DIR",
        help="folder for the HTML pages (default: a folder in pytest's cache)",
    )
    group.addoption(
        "--tensor-cycles-json", metavar="FILE", help="write all leaks to FILE as one JSON report"
    )
    group.addoption(
        "--tensor-cycles-sarif",
        metavar="FILE",
        help="write all leaks to FILE as SARIF, for code scanning",
    )
    parser.addini("tensor_cycles", "same as --tensor-cycles")
    parser.addini("tensor_cycles_devices", "same as --tensor-cycles-devices")
    parser.addini(
        "tensor_cycles_allow",
        "leaks that are allowed: signatures, patterns or libraries",
        type="linelist",
    )
    parser.addini(
        "tensor_cycles_baseline", "same as --tensor-cycles-baseline, relative to the rootdir"
    )
    parser.addini(
        "tensor_cycles_report_dir", "same as --tensor-cycles-report-dir, relative to the rootdir"
    )


def read(config: pytest.Config) -> Choices:
    """Read and validate the options.

    Raises:
        pytest.UsageError: If an option is invalid.
    """
    from cyclescope._pytest.baseline import Baseline
    from cyclescope._selection import device_names, ignored_names
    from cyclescope._settings import settings

    mode = config.getoption("--tensor-cycles") or config.getini("tensor_cycles") or None
    if mode not in (None, *MODES):
        raise pytest.UsageError(f"tensor_cycles is {mode!r}; it can be {', '.join(MODES)}")
    devices = config.getoption("--tensor-cycles-devices") or config.getini("tensor_cycles_devices")
    allowed = config.getini("tensor_cycles_allow")
    update = config.getoption("--tensor-cycles-update-baseline")
    file = _path(config, "baseline")
    if update and file is None:
        raise pytest.UsageError(
            "--tensor-cycles-update-baseline needs a file: give --tensor-cycles-baseline=FILE"
        )
    asks_for_results = any(_written(name, config) for name in ("baseline", "json", "sarif"))
    if mode is None and (update or asks_for_results):
        # A file that says "no leaks", where no test was checked, would be false.
        mode = "report"
    try:
        configured = settings(config.rootpath)
        given = [name.strip() for name in devices.split(",") if name.strip()] if devices else None
        return Choices(
            mode=mode,
            devices=device_names(configured.devices_or(given, "any")),
            ignore=[*configured.ignore, *ignored_names(allowed)],
            baseline=None if file is None else Baseline.read(file, may_be_missing=update),
            update_baseline=update,
            json=_written("json", config),
            sarif=_written("sarif", config),
            config=config,
            given_report_dir=_path(config, "report-dir") or configured.report_dir,
        )
    except (ValueError, OSError) as error:
        raise pytest.UsageError(f"cyclescope: {error}") from None


def _path(config: pytest.Config, name: str) -> Path | None:
    """A path from the command line, or from the configuration, relative to the rootdir."""
    configured: str = config.getini(f"tensor_cycles_{name.replace('-', '_')}")
    return _written(name, config) or (config.rootpath / configured if configured else None)


def _written(name: str, config: pytest.Config) -> Path | None:
    given: str | None = config.getoption(f"--tensor-cycles-{name}")
    return config.invocation_params.dir / given if given else None
