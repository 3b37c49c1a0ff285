"""PyTorch's own detector of reference cycles, replaced by this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from cyclescope import _warner, _watch
from cyclescope._devices import Devices
from cyclescope._native import CycleReport
from cyclescope._off import OFF
from cyclescope._selection import StrPath

UNDONE = "_cyclescope_undone"
"""The attribute in which a replacement that has ended keeps what it has replaced."""


class TorchPatch:
    """The replacement; end it with :meth:`undo`, or use it as a context manager."""

    def __init__(self, module: Any, replacements: dict[str, Callable[..., Any]]) -> None:
        self._module = module
        self._originals = {name: getattr(module, name) for name in replacements}
        self._replacements = replacements
        for name, function in replacements.items():
            setattr(module, name, function)

    def undo(self) -> None:
        """Restore PyTorch's functions, unless other code has replaced them since.

        If that was another :func:`patch_torch`, its end restores them.
        """
        for name, original in self._originals.items():
            replacement = self._replacements[name]
            vars(replacement)[UNDONE] = original
            if getattr(self._module, name) is replacement:
                setattr(self._module, name, _in_force(original))
        self._originals.clear()

    def __enter__(self) -> TorchPatch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.undo()


def _in_force(function: Any) -> Any:
    """What a function has replaced, if that replacement has ended meanwhile."""
    while UNDONE in getattr(function, "__dict__", {}):
        function = vars(function)[UNDONE]
    return function


def patch_torch(
    *,
    devices: Devices | None = None,
    report_dir: StrPath | None = None,
    ignore: Sequence[str] = (),
) -> TorchPatch:
    """Replace PyTorch's reference cycle detector with cyclescope.

    Replaces ``warn_tensor_cycles`` and ``observe_tensor_cycles`` in ``torch.utils.viz._cycles``,
    which frameworks such as torchtitan call to debug garbage collection. The signatures stay the
    same: a callback receives an HTML page, and the returned function stops the watch. Code that
    imported the functions by name earlier keeps PyTorch's.

    Args:
        devices: See :func:`warn_tensor_cycles`.
        report_dir: See :func:`warn_tensor_cycles`.
        ignore: See :func:`warn_tensor_cycles`.

    Raises:
        RuntimeError: If PyTorch is not installed or has no ``torch.utils.viz._cycles``.
    """
    if OFF:
        return TorchPatch(None, {})
    try:
        from torch.utils.viz import _cycles
    except ImportError as error:
        raise RuntimeError(
            f"patch_torch needs a PyTorch with torch.utils.viz._cycles ({error}); call "
            "cyclescope.warn_tensor_cycles() instead"
        ) from None

    def warn_tensor_cycles() -> Callable[[], None]:
        """Warn of cycles that hold tensors. Returns a function that stops the watch."""
        return _warner.warn_tensor_cycles(
            devices=devices, report_dir=report_dir, ignore=ignore
        )._release

    def observe_tensor_cycles(callback: Callable[[str], object]) -> Callable[[], None]:
        """Call ``callback`` with an HTML page. Returns a function that stops the watch."""

        def with_page(report: CycleReport) -> None:
            callback(report.to_html())

        return _watch.observe_tensor_cycles(with_page, devices=devices, ignore=ignore).stop

    return TorchPatch(
        _cycles,
        {
            "warn_tensor_cycles": warn_tensor_cycles,
            "observe_tensor_cycles": observe_tensor_cycles,
        },
    )
