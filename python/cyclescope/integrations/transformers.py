"""A callback for the Trainer of Hugging Face Transformers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cyclescope._selection import Devices, StrPath
from cyclescope._step import StepCollector, StepReport

if TYPE_CHECKING:
    TrainerCallback = Any
else:
    from transformers import TrainerCallback


class TensorCyclesCallback(TrainerCallback):  # type: ignore[misc]
    """Collects every so many optimizer steps, warns of new leaks, and logs how much cycles held.

    With the trainer, the scalars ``cyclescope/...`` go through ``trainer.log`` to TensorBoard,
    Weights & Biases or whatever it reports to::

        trainer.add_callback(TensorCyclesCallback(trainer, every=100))

    Args:
        trainer: The trainer to log with; None to log no scalars. It is referred to weakly.
        every: How many steps there are between two collections; see :func:`cyclescope.step`.
        devices: As for :func:`cyclescope.warn_tensor_cycles`.
        report_dir: As for :func:`cyclescope.warn_tensor_cycles`.
        ignore: As for :func:`cyclescope.warn_tensor_cycles`.
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
        # The trainer holds its callbacks: a strong reference would make the cycle we look for.
        self._trainer = None if trainer is None else weakref.ref(trainer)
        self._collector: StepCollector | None = None
        self.last_report: StepReport | None = None
        """What the last collection found."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to watch."""
        if self._collector is None:
            self._collector = StepCollector(**self._options)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count a step, and log what its collection found if there was one."""
        found = None if self._collector is None else self._collector.step()
        if found is None:
            return
        self.last_report = found
        trainer = None if self._trainer is None else self._trainer()
        if trainer is not None:
            trainer.log(found.scalars())

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the watch."""
        if self._collector is not None:
            self._collector.stop()
            self._collector = None
