"""The checks of what is garbage now.

They import what they need when they are called.
"""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclescope._native import CycleReport
    from cyclescope._selection import Devices


class Uncollected:
    """A first call, in which the collector does not run by itself.

    What the imports of that call allocate would set off a collection, which frees what the call is
    to find.
    """

    def __enter__(self) -> None:
        self._pauses = "cyclescope._watch" not in sys.modules and gc.isenabled()
        if self._pauses:
            gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._pauses:
            gc.enable()


def find_tensor_cycles(
    *, devices: Devices | None = None, ignore: Sequence[str] = (), redact: bool = False
) -> CycleReport:
    """Collect now and report the tensors that only cycles kept alive.

    Looks before finalizers run, so it also finds the cycles that a finalizer breaks; then runs a
    full collection, and reports only memory that really went.

    Args:
        devices: Which memory to look for; see :func:`warn_tensor_cycles`.
        ignore: Leaks to leave out of the report; see :func:`warn_tensor_cycles`.
        redact: As for :func:`warn_tensor_cycles`.

    Raises:
        ValueError: If ``devices`` names no device, ``ignore`` is not a list of names, or a setting
            is wrong.
    """
    with Uncollected():
        from cyclescope import _native
        from cyclescope._watch import resolve

        if redact:
            _native.redact()
        way_out = "Pass find_tensor_cycles(devices='any')"
        return _native.find(*resolve(devices, ignore, "cuda", way_out))


def assert_no_tensor_cycles(*, devices: Devices | None = None, ignore: Sequence[str] = ()) -> None:
    """Collect now, and raise :class:`TensorCycleError` if cycles kept tensors alive.

    Args:
        devices: As for :func:`forbid_tensor_cycles`.
        ignore: As for :func:`forbid_tensor_cycles`.

    Raises:
        TensorCycleError: If there are any; it has the report.
        ValueError: If ``devices`` names no device, ``ignore`` is not a list of names, or a setting
            is wrong.
    """
    __tracebackhide__ = True
    with Uncollected():
        from cyclescope import _native
        from cyclescope._watch import resolve

        way_out = "Pass assert_no_tensor_cycles(devices='any')"
        report = _native.find(*resolve(devices, ignore, "any", way_out))
    if report.leaks:
        from cyclescope._forbid import TensorCycleError

        raise TensorCycleError(report)
