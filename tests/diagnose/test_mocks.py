"""A mock is one leak, whatever it is in cycles with, and the advice says what it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy
import pytest

import cyclescope
from support.owners import found

pytestmark = pytest.mark.usefixtures("collector_paused")

RESET = "`reset_mock()` on the outermost mock"


def array() -> Any:
    return numpy.zeros(5000)


class Model:
    def forward(self, batch: Any) -> Any:
        return batch

    @classmethod
    def make(cls, batch: Any) -> Any:
        return batch


class Trainer:
    """Its model is a mock, which is called with the trainer."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.array = array()
        self.model.forward(self.array)
        self.model.log(self)


def called(mocked: Any) -> Any:
    mocked(array())
    return mocked


def method_called(mocked: Any) -> Any:
    mocked.forward(array())
    return mocked


def called_by_keyword(mocked: Any) -> Any:
    mocked.forward(model=mocked, batch=array())
    return mocked


def made_and_called(mocked: Any) -> Any:
    mocked.make().run(array())
    return mocked


def entered(mocked: Any) -> Any:
    mocked.open.return_value.close(array())
    return mocked


def has_a_child(mocked: Any) -> Any:
    mocked.attach_mock(mock.Mock(), "child")
    mocked.child(array())
    return mocked


def enters_itself(mocked: Any) -> Any:
    entered = mocked.enter
    entered.return_value = mocked
    entered().forward(array())
    return mocked


def of_a_trainer(mocked: Any) -> Any:
    return Trainer(mocked).model


USES: list[Callable[[Any], Any]] = [
    called,
    method_called,
    called_by_keyword,
    made_and_called,
    entered,
    has_a_child,
    enters_itself,
    of_a_trainer,
]
MAKERS: list[Callable[[], Any]] = [mock.Mock, mock.MagicMock, mock.NonCallableMagicMock]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("make", MAKERS)
def test_it_is_one_leak_and_is_to_be_reset(
    make: Callable[[], Any], use: Callable[[Any], Any]
) -> None:
    if use is called and make is mock.NonCallableMagicMock:
        pytest.skip("it cannot be called")
    leaks = found(lambda: use(make())).leaks
    # A plain mock that was called itself may be in no cycle.
    assert [leak.pattern for leak in leaks] in ([], ["mock-keeps-arguments"])
    assert leaks or use is called
    for leak in leaks:
        assert RESET in leak.advice
        assert "_mock_" not in leak.advice
    mocked = use(make())
    mocked.reset_mock()
    del mocked
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks == []


def forward(batch: Any, scale: int = 1) -> Any:
    return batch, scale


def specced(keeps: str = "") -> Any:
    mocked = mock.create_autospec(forward)
    mocked(array())
    if keeps:
        setattr(mocked, keeps, array())
    return mocked


def patched() -> Any:
    with mock.patch.object(Model, "forward", autospec=True) as mocked:
        Model().forward(array())
    return mocked


def patched_class_method() -> Any:
    with mock.patch.object(Model, "make", autospec=True) as mocked:
        Model.make(array())
    return mocked


def called_with_its_owner() -> Any:
    model = Model()
    model.array = array()  # type: ignore[attr-defined]
    model.forward = mock.create_autospec(forward)  # type: ignore[method-assign]
    model.forward(model)
    return model.forward


def attached() -> Any:
    parent = mock.Mock()
    parent.attach_mock(mock.create_autospec(forward), "forward")
    parent.forward(array())
    return parent


@pytest.mark.parametrize("make", [specced, patched, patched_class_method, called_with_its_owner])
def test_what_stands_for_a_function_is_one_leak_and_is_to_be_reset(
    make: Callable[[], Any],
) -> None:
    (leak,) = found(make).leaks
    assert leak.pattern == "mock-keeps-arguments"
    assert RESET in leak.advice
    mocked = make()
    mocked.reset_mock()
    del mocked
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks == []


@pytest.mark.parametrize(
    "make", [lambda: specced("return_value"), lambda: specced("cache"), attached]
)
def test_a_reset_that_a_function_does_not_allow_is_not_advised(make: Callable[[], Any]) -> None:
    (leak,) = found(make).leaks
    assert leak.pattern == "mock-keeps-arguments"
    assert RESET not in leak.advice


def stored(mocked: Any) -> Any:
    mocked.weight = array()
    mocked.enter.return_value = mocked
    return mocked


def returned(mocked: Any) -> Any:
    mocked.forward.return_value = array()
    return mocked


def returned_with_itself(mocked: Any) -> Any:
    mocked.forward.return_value = (mocked, array())
    return mocked


def raised(mocked: Any) -> Any:
    mocked.forward.side_effect = [array()]
    return mocked


@pytest.mark.parametrize("use", [stored, returned, returned_with_itself, raised])
def test_what_a_reset_does_not_drop_is_not_said_to_be(use: Callable[[Any], Any]) -> None:
    (leak,) = found(lambda: use(mock.MagicMock())).leaks
    assert leak.pattern == "mock-keeps-arguments"
    assert "Run `gc.collect()` after the test." in leak.advice
    assert RESET not in leak.advice


def test_a_method_in_a_mock_is_named_as_a_test_writes_it() -> None:
    class Trained:
        def __init__(self) -> None:
            self.array = array()
            self.logger = mock.Mock()
            self.logger.log.side_effect = self.on_log

        def on_log(self, *_: object) -> None: ...

    (leak,) = found(Trained).leaks
    assert "`Mock.side_effect` is `on_log`" in leak.advice
    assert "set `Mock.side_effect` to None" in leak.advice


def test_what_wraps_a_method_cannot_be_set() -> None:
    def make() -> None:
        model = Model()
        model.array = array()  # type: ignore[attr-defined]
        model.forward = mock.Mock(wraps=model.forward)  # type: ignore[method-assign]

    (leak,) = found(make).leaks
    assert "drop the Mock, which keeps the bound method as `wraps`" in leak.advice
