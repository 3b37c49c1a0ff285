"""Explicit checks for garbage.

They import their dependencies when called, which keeps ``import cyclescope`` cheap.
"""

from __future__ import annotations

import sys

from cyclescope import _system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclescope._devices import Devices
    from cyclescope._native import CycleReport


class Uncollected:
    """Disable automatic collection during the first call.

    The imports of that call allocate objects and could trigger a collection, which would free the
    garbage that the call is meant to find.
    """

    def __enter__(self) -> None:
        self._pauses = "cyclescope._watch" not in sys.modules and _system.is_collection_enabled()
        if self._pauses:
            _system.disable_collection()

    def __exit__(self, *error: object) -> None:
        if self._pauses:
            _system.enable_collection()


def find_tensor_cycles(
    *,
    devices: Devices | None = None,
    ignore: Sequence[str] = (),
    redact: bool = False,
    frozen: bool = True,
    min_bytes: int = 0,
) -> CycleReport:
    """Collect garbage now and report the tensors that only reference cycles kept alive.

    The garbage is inspected before finalizers run, so cycles that a finalizer breaks are found
    too. A full collection follows. The report has the memory that this collection freed, and
    garbage that no collection frees because ``gc.freeze()`` excluded it (:attr:`Leak.frozen`).

    Args:
        devices: Which memory to check; see :func:`warn_tensor_cycles`.
        ignore: Leaks to leave out of the report; see :func:`warn_tensor_cycles`.
        redact: See :func:`warn_tensor_cycles`.
        frozen: Whether to look for garbage among the objects that ``gc.freeze()`` excluded. This
            takes as long as a full collection that includes them.
        min_bytes: Leave out leaks that held less.

    Returns:
        The report; its ``leaks`` are empty if nothing leaked.

    Raises:
        ValueError: If ``devices`` names no device, ``ignore`` is not a list of names,
            ``min_bytes`` is not a number of bytes, or a setting is invalid.
        TypeError: If ``redact`` or ``frozen`` is neither true nor false.
    """
    with Uncollected():
        from cyclescope import _native
        from cyclescope._selection import redact_if
        from cyclescope._settings import check_min_bytes
        from cyclescope._watch import at_least, resolve

        check_min_bytes(min_bytes)
        redact_if(redact)
        if not isinstance(frozen, bool):
            raise TypeError(f"frozen must be True or False, not {frozen!r}")
        way_out = "Pass find_tensor_cycles(devices='any')"
        found = _native.find(*resolve(devices, ignore, way_out), frozen)
        return at_least(min_bytes, found)


def assert_no_tensor_cycles(
    *, devices: Devices | None = None, ignore: Sequence[str] = (), min_bytes: int = 0
) -> None:
    """Collect garbage now and raise :class:`TensorCycleError` if cycles kept tensors alive.

    Garbage that no collection frees, because ``gc.freeze()`` excluded it, counts too.

    Args:
        devices: Which memory to check; see :func:`forbid_tensor_cycles`.
        ignore: Leaks that are allowed; see :func:`warn_tensor_cycles`.
        min_bytes: Allow leaks that held less.

    Raises:
        TensorCycleError: If a cycle kept a tensor alive. The error carries the report.
        ValueError: If ``devices`` names no device, ``ignore`` is not a list of names,
            ``min_bytes`` is not a number of bytes, or a setting is invalid.
    """
    __tracebackhide__ = True
    with Uncollected():
        from cyclescope import _native
        from cyclescope._settings import check_min_bytes
        from cyclescope._watch import at_least, resolve

        check_min_bytes(min_bytes)
        way_out = "Pass assert_no_tensor_cycles(devices='any')"
        found = _native.find(*resolve(devices, ignore, way_out), True)
        report = at_least(min_bytes, found)
    if report.leaks:
        from cyclescope._forbid import TensorCycleError

        raise TensorCycleError(report)
