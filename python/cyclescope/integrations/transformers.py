"""A callback for the Trainer of Hugging Face Transformers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cyclescope._devices import Devices
from cyclescope._selection import StrPath
from cyclescope._step import StepCollector, StepReport

if TYPE_CHECKING:
    TrainerCallback = Any
else:
    from transformers import TrainerCallback


class TensorCyclesCallback(TrainerCallback):  # type: ignore[misc]
    """Collects garbage every N optimizer steps, warns of new leaks, and logs what cycles held.

    If given the trainer, it logs the scalars ``cyclescope/...`` with ``trainer.log``, which passes
    them to TensorBoard, Weights & Biases and other configured loggers::

        trainer.add_callback(TensorCyclesCallback(trainer, every=100))

    Args:
        trainer: The trainer to log with; None to log no scalars. Only a weak reference is kept.
        every: Number of steps between two collections; see :func:`cyclescope.step`.
        devices: See :func:`cyclescope.warn_tensor_cycles`.
        report_dir: See :func:`cyclescope.warn_tensor_cycles`.
        ignore: See :func:`cyclescope.warn_tensor_cycles`.
    """

    def __init__(
        self,
        trainer: Any | None = None,
        *,
        every: int | None = None,
        devices: Devices | None = None,
        report_dir: StrPath | None = None,
        ignore: Sequence[str] = (),
    ) -> None:
        self._options: dict[str, Any] = {
            "every": every,
            "devices": devices,
            "report_dir": report_dir,
            "ignore": ignore,
        }
        # The trainer holds its callbacks, so a strong reference would form a cycle.
        self._trainer = None if trainer is None else weakref.ref(trainer)
        self._collector: StepCollector | None = None
        self.last_report: StepReport | None = None
        """The result of the last collection."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the watch."""
        if self._collector is None:
            self._collector = StepCollector(**self._options)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count a step. If it collects, log the result."""
        found = None if self._collector is None else self._collector.step()
        if found is None:
            return
        self.last_report = found
        trainer = None if self._trainer is None else self._trainer()
        if trainer is not None:
            trainer.log(found.scalars())

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the watch."""
        if self._collector is not None:
            self._collector.stop()
            self._collector = None
