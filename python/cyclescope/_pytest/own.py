"""What pytest itself leaves when a test, a fixture or a clean-up raises, as by ``pytest.skip()``.

pytest keeps the exception in the fixture and in the node that it was raised for, until these are
torn down: frames of its own hold it, and it holds these. Who wrote the test can do nothing there.
"""

from __future__ import annotations

from pathlib import Path

from cyclescope import _native
from cyclescope._native import CycleReport, Leak, Step

OWN = ("pytest", "pluggy")
"""The libraries."""

FOLDERS = ("_pytest", "pluggy")
"""Where their code is, and the code of cyclescope that is between them."""

BETWEEN = ("cell", "dict", "list", "traceback", "tuple")
"""The classes of what leads from a frame to an exception."""


def without_own(report: CycleReport) -> CycleReport:
    """The report without cycles that are wholly made by pytest."""
    others = [leak.signature for leak in report.leaks if not is_own(leak)]
    return report if len(others) == len(report.leaks) else _native.select(report, others)


def is_own(leak: Leak) -> bool:
    """True for a cycle that is wholly made by pytest: of its frames, and of what these refer to."""
    if leak.library is not None:
        return leak.library.name in OWN
    has_frame = any(step.type_name == "frame" for step in leak.cycle)
    return has_frame and all(map(_is_step_of_own, leak.cycle))


def _is_step_of_own(step: Step) -> bool:
    """True for a frame of pytest, and for what leads from one to an exception that it holds."""
    if step.type_name == "frame":
        return Path((step.location or "").rpartition(":")[0]).parent.name in FOLDERS
    is_exception = step.edge == ".__traceback__"
    return is_exception or step.type_name in BETWEEN or step.type_name.partition(".")[0] in FOLDERS
