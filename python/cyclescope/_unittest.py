"""A mixin for :class:`unittest.TestCase`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cyclescope._devices import Devices
from cyclescope._forbid import Recorder, TensorCycleError
from cyclescope._imported import imported
from cyclescope._native import CycleReport
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

    The check runs last, after ``tearDown`` and all clean-ups. If a test is skipped or fails as
    expected, the check runs at that point, and a leak is an additional error. If the test fails by
    itself, nothing is checked. What the test has set on ``self`` is alive then, with all that it
    holds: set it to None in ``tearDown`` to have it checked::

        class TestTraining(cyclescope.NoTensorCycles, unittest.TestCase): ...
    """

    tensor_cycle_devices: Devices | None = None
    """Which memory to check; see :func:`forbid_tensor_cycles`."""
    tensor_cycle_ignore: Sequence[str] = ()
    """Leaks that are allowed; see :func:`warn_tensor_cycles`."""

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)  # type: ignore[arg-type]
        case = imported("unittest.case", "TestCase")
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
        self._recorder = recorder
        self._has_raised = False
        self._owed: CycleReport | None = None
        # Clean-ups run in reverse order, so this one runs last.
        self.addCleanup(self._check_tensor_cycles)
        try:
            return super().run(result)
        finally:
            recorder.stop()

    # unittest calls this before the test method, and the next for that; its `_outcome` is reset for
    # clean-ups.
    def _callSetUp(self) -> None:
        try:
            super()._callSetUp()  # type: ignore[misc]
        except BaseException as error:
            self._note(error, is_expected=False)
            raise

    def _callTestMethod(self, method: Callable[[], object]) -> None:
        try:
            super()._callTestMethod(method)  # type: ignore[misc]
        except BaseException as error:
            expecting = "__unittest_expecting_failure__"
            is_expected = getattr(self, expecting, False) or getattr(method, expecting, False)
            self._note(error, is_expected=is_expected)
            raise

    def _note(self, error: BaseException, *, is_expected: bool) -> None:
        """Check a test that is skipped or fails as expected, while its exception holds its frames.

        What only the exception holds is no leak: it may be in a cycle, such as that of a task.
        """
        self._has_raised = True
        if is_expected or isinstance(error, sys.modules["unittest.case"].SkipTest):
            self._owed = self._recorder.take()

    def _check_tensor_cycles(self) -> None:
        report = self._owed if self._has_raised else self._recorder.take()
        if report is not None and report.leaks:
            raise TensorCycleError(report)


def _raise(error: Exception) -> None:
    raise error
