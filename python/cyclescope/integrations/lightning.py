"""A callback for PyTorch Lightning."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cyclescope._devices import Devices
from cyclescope._selection import StrPath
from cyclescope._step import StepCollector, StepReport

if TYPE_CHECKING:
    Callback = Any
elif "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    # The two packages differ only in name, but reject each other's callbacks.
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class TensorCycles(Callback):  # type: ignore[misc]
    """Collects garbage every N batches, warns of new leaks, and logs how much memory cycles held.

    The scalars ``cyclescope/...`` go to the loggers of the trainer::

        Trainer(callbacks=[TensorCycles(every=100)])

    Args:
        every: Number of training batches between two collections; see :func:`cyclescope.step`.
        devices: See :func:`cyclescope.warn_tensor_cycles`.
        report_dir: See :func:`cyclescope.warn_tensor_cycles`.
        ignore: See :func:`cyclescope.warn_tensor_cycles`.
        log: Whether to log the scalars.
    """

    def __init__(
        self,
        *,
        every: int | None = None,
        devices: Devices | None = None,
        report_dir: StrPath | None = None,
        ignore: Sequence[str] = (),
        log: bool = True,
    ) -> None:
        super().__init__()
        self._options: dict[str, Any] = {
            "every": every,
            "devices": devices,
            "report_dir": report_dir,
            "ignore": ignore,
        }
        self._log = log
        self._collector: StepCollector | None = None
        self.last_report: StepReport | None = None
        """The result of the last collection."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the watch."""
        if self._collector is None:
            self._collector = StepCollector(**self._options)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a step. If it collects, log the result."""
        found = None if self._collector is None else self._collector.step()
        if found is None:
            return
        self.last_report = found
        if self._log:
            for logger in trainer.loggers:
                logger.log_metrics(found.scalars(), step=trainer.global_step)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Stop the watch."""
        if self._collector is not None:
            self._collector.stop()
            self._collector = None
