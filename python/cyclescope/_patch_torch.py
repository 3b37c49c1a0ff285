"""PyTorch's own detector of reference cycles, replaced by this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from cyclescope import _watch
from cyclescope._native import CycleReport
from cyclescope._off import OFF
from cyclescope._selection import Devices, StrPath


class TorchPatch:
    """The replacement; end it with :meth:`undo`, or use it as a context manager."""

    def __init__(self, module: Any, replacements: dict[str, Callable[..., Any]]) -> None:
        self._module = module
        self._originals = {name: getattr(module, name) for name in replacements}
        self._replacements = replacements
        for name, function in replacements.items():
            setattr(module, name, function)

    def undo(self) -> None:
        """Put PyTorch's functions back, unless somebody has put others there since."""
        for name, original in self._originals.items():
            if getattr(self._module, name) is self._replacements[name]:
                setattr(self._module, name, original)
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


def patch_torch(
    *,
    devices: Devices | None = None,
    report_dir: StrPath | None = None,
    ignore: Sequence[str] = (),
) -> TorchPatch:
    """Have programs that ask for PyTorch's reference cycle detector get this one.

    Replaces ``warn_tensor_cycles`` and ``observe_tensor_cycles`` of ``torch.utils.viz._cycles``,
    which frameworks call when told to debug garbage collection (torchtitan does). They take and
    return what PyTorch's do: a callback gets a page, and what is returned ends the watch. What has
    imported the functions by name before keeps PyTorch's.

    Args:
        devices: As for :func:`warn_tensor_cycles`.
        report_dir: As for :func:`warn_tensor_cycles`.
        ignore: As for :func:`warn_tensor_cycles`.

    Raises:
        RuntimeError: If PyTorch is not installed, or has no such module.
    """
    if OFF:
        return TorchPatch(None, {})
    try:
        from torch.utils.viz import _cycles
    except ImportError as error:
        raise RuntimeError(
            f"patch_torch needs a PyTorch with torch.utils.viz._cycles ({error}); without it call "
            "cyclescope.warn_tensor_cycles() itself"
        ) from None

    def warn_tensor_cycles() -> Callable[[], None]:
        """Warn of cycles that hold tensors; what is returned ends that."""
        return _watch.warn_tensor_cycles(devices=devices, report_dir=report_dir, ignore=ignore).stop

    def observe_tensor_cycles(callback: Callable[[str], object]) -> Callable[[], None]:
        """Call ``callback`` with a page of each leak; what is returned ends that."""

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
