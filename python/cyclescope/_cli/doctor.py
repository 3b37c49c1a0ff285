"""``cyclescope doctor``."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Any

import cyclescope
from cyclescope import _native
from cyclescope._cli.common import add_json, colored, print_json, version
from cyclescope._cli.output import out
from cyclescope._files import why_unwritable
from cyclescope._live.on_signal import VARIABLE as ON_SIGNAL
from cyclescope._live.on_signal import signal_number
from cyclescope._off import OFF, VARIABLE
from cyclescope._settings import settings

FRAMEWORKS = ("torch", "numpy", "cupy", "jax", "tensorflow", "lightning", "transformers", "pytest")
SETTINGS = (
    "devices",
    "ignore",
    "report_dir",
    "record_history",
    "every",
    "growth_every",
    "redact",
    "min_bytes",
)

Finding = tuple[str, str, str]
"""The state (``ok``, ``no`` for broken, empty for optional), the item, and its description."""

UNSET = {
    "devices": "accelerators, or host memory if there are none",
    "ignore": "nothing",
    "report_dir": "a temporary folder",
    "min_bytes": "1 MiB of host memory, or any device memory",
}
"""What applies where a setting has no value."""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = "Exits with status 1 if a check fails."
    parser.add_argument(
        "--no-gpu",
        action="store_true",
        help="skip the GPU check, which initialises CUDA in this process",
    )
    add_json(parser)


def run(parsed: argparse.Namespace) -> int:
    """Print one line per check."""
    if parsed.json:
        found = list(findings(gpu=not parsed.no_gpu))
        states = {"ok": "ok", "no": "failed", "": "absent"}
        checks = [
            {"state": states[state], "item": thing, "description": what}
            for state, thing, what in found
        ]
        print_json({"checks": checks})
        return 1 if any(state == "no" for state, _, _ in found) else 0
    broken = False
    for state, thing, what in findings(gpu=not parsed.no_gpu):
        broken |= state == "no"
        mark = {"ok": colored("ok", "32"), "no": colored("no", "31")}.get(state, "  ")
        out(f"{mark}  {thing:22}{what}", flush=True)
    return 1 if broken else 0


def findings(*, gpu: bool) -> Iterator[Finding]:
    """Run the checks, each after those that it depends on."""
    yield "ok", "cyclescope", f"{version()} at {os.path.dirname(cyclescope.__file__)}"
    yield "ok", "Python", f"{platform.python_implementation()} {platform.python_version()}"
    yield "ok", "platform", platform.platform()
    for name in FRAMEWORKS:
        found = _installed(name)
        yield ("ok" if found else ""), name, found or "not installed"
    driver = _native.cuda_driver_present()
    yield ("ok" if driver else ""), "CUDA driver", "found" if driver else "none on this machine"
    yield _collector()
    if OFF:
        what = f"{VARIABLE} is {os.environ.get(VARIABLE)!r}: cyclescope does nothing"
        yield "", "off", what
    else:
        yield from _trials(gpu=gpu)
    yield from _settings()


def _trials(*, gpu: bool) -> Iterator[Finding]:
    if importlib.util.find_spec("numpy") is not None:
        yield _trial("host memory (NumPy)", "import numpy; tensor = numpy.zeros(2**20)", "any")
    if importlib.util.find_spec("torch") is not None:
        yield _trial("host memory (PyTorch)", "import torch; tensor = torch.zeros(2**20)", "any")
        if gpu:
            yield _gpu()


def _installed(name: str) -> str | None:
    try:
        return installed(name)
    except PackageNotFoundError:
        return None


def _collector() -> Finding:
    state = "automatic" if gc.isenabled() else "disabled"
    return "ok", "garbage collector", f"{state}, thresholds {gc.get_threshold()}"


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return "", "GPU (PyTorch)", "none that PyTorch can use"
    name = torch.cuda.get_device_name()
    finding = _trial(
        "GPU (PyTorch)", "import torch; tensor = torch.zeros(2**20, device='cuda')", "cuda"
    )
    return finding[0], finding[1], f"{finding[2]}, on {name}"


def _trial(thing: str, make: str, devices: str) -> Finding:
    """Make a leak on purpose and check that it is found."""
    scope: dict[str, Any] = {}
    try:
        exec(
            f"{make}\nclass Owner: pass\nowner = Owner()\nowner.me, owner.tensor = owner, tensor",
            scope,
        )
        scope.clear()
        report = cyclescope.find_tensor_cycles(devices=devices, ignore=[])
    except Exception as error:
        return "no", thing, f"{type(error).__name__}: {error}"
    if not any("Owner" in leak.summary for leak in report.leaks):
        return "no", thing, "a test leak was not found"
    confirmed = any(buffer.confirmed for leak in report.leaks for buffer in leak.buffers)
    words = ", confirmed by the driver" if confirmed else ""
    return "ok", thing, f"a test leak was found{words}"


def _settings() -> Iterator[Finding]:
    try:
        configured = settings()
    except ValueError as error:
        yield "no", "settings", str(error)
        return
    for name in SETTINGS:
        value = getattr(configured, name)
        shown = ", ".join(value) if isinstance(value, tuple) else value
        origin = configured.origins.get(name, "default")
        line = f"{UNSET[name] if shown in (None, '') else shown} ({origin})"
        if name == "report_dir" and value is not None:
            why = why_unwritable(value / "report.html")
            if why is not None:
                yield "no", name, f"{line}: reports cannot be written there: {why}"
                continue
        yield "ok", name, line
    yield from _signal()


def _signal() -> Iterator[Finding]:
    name = os.environ.get(ON_SIGNAL, "").strip()
    if not name:
        return
    try:
        signal_number(name)
    except ValueError as error:
        yield "no", ON_SIGNAL, str(error)
    else:
        shown = name.upper().removeprefix("SIG")
        yield "ok", ON_SIGNAL, f"{name}: `kill -{shown} PID` asks a program for a report"
