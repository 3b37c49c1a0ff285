"""A mixin for :class:`unittest.TestCase`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cyclescope._devices import Devices
from cyclescope._forbid import Recorder, TensorCycleError
from cyclescope._off import OFF
from cyclescope._suggest import nearest
from cyclescope._watch import resolve

if TYPE_CHECKING:
    import unittest

    _Base = unittest.TestCase
else:
    # Leave it to the program to import unittest.
    _Base = object


SETTINGS = ("tensor_cycle_devices", "tensor_cycle_ignore")


class NoTensorCycles(_Base):
    """Fails each test of a :class:`unittest.TestCase` that leaves a tensor in a reference cycle.

    The check runs last, after ``tearDown`` and all clean-ups. It is skipped if the test itself
    fails::

        class TestTraining(cyclescope.NoTensorCycles, unittest.TestCase): ...
    """

    tensor_cycle_devices: Devices | None = None
    """Which memory to check; see :func:`forbid_tensor_cycles`."""
    tensor_cycle_ignore: Sequence[str] = ()
    """Leaks that are allowed; see :func:`warn_tensor_cycles`."""

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)  # type: ignore[arg-type]
        case = getattr(sys.modules.get("unittest.case"), "TestCase", None)
        order = cls.__mro__
        if case in order and order.index(case) < order.index(NoTensorCycles):
            bases = sorted(cls.__bases__, key=lambda base: not issubclass(base, NoTensorCycles))
            names = ", ".join(base.__name__ for base in bases)
            raise TypeError(
                f"{cls.__qualname__} derives from unittest.TestCase before NoTensorCycles, so its "
                f"tests would not be checked; write class {cls.__name__}({names})"
            )
        for name in vars(cls):
            if name not in SETTINGS and (meant := nearest(name, SETTINGS, cutoff=0.85)):
                raise TypeError(
                    f"{cls.__qualname__}.{name} is not a setting of NoTensorCycles; did you mean "
                    f"{meant!r}?"
                )

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run the test, then the check."""
        if OFF:
            return super().run(result)
        way_out = f"Set {type(self).__qualname__}.tensor_cycle_devices = 'any'"
        devices, ignore = self.tensor_cycle_devices, self.tensor_cycle_ignore
        try:
            recorder = Recorder(*resolve(devices, ignore, way_out))
        except (TypeError, ValueError) as error:
            # Reported as an error of this test, so that the run goes on.
            self.addCleanup(_raise, error)
            return super().run(result)
        self._failed_by_itself = False
        # Clean-ups run in reverse order, so this one runs last.
        self.addCleanup(self._check_tensor_cycles, recorder)
        try:
            return super().run(result)
        finally:
            recorder.stop()

    # unittest calls this for the test method; its `_outcome` is reset for clean-ups.
    def _callTestMethod(self, method: Callable[[], object]) -> None:
        try:
            super()._callTestMethod(method)  # type: ignore[misc]
        except BaseException:
            self._failed_by_itself = True
            raise

    def _check_tensor_cycles(self, recorder: Recorder) -> None:
        if not self._failed_by_itself:
            report = recorder.take()
            if report.leaks:
                raise TensorCycleError(report)


def _raise(error: Exception) -> None:
    raise error
