"""Blocks, functions, tasks and unittest cases in which no cycle may leak a tensor."""

# What a block does is what these tests are about.
# ruff: noqa: PT012

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import multiprocessing
import pickle
import sys
import threading
import types
import unittest
from collections.abc import Callable, Coroutine, Iterator
from concurrent import futures
from typing import Any

import numpy
import pytest

import cyclescope
from cyclescope import (
    CycleReport,
    TensorCycleError,
    _devices,
    _native,
    _watch,
    assert_no_tensor_cycles,
    forbid_tensor_cycles,
)
from support.nodes import Node


class Other(Node):
    pass


class Cleaner(Node):
    """Its finalizer breaks the cycle, so that the collector saves nothing of it."""

    def __del__(self) -> None:
        del self.me


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    gc.collect()
    yield
    assert not [c for c in gc.callbacks if "cyclescope" in repr(c)], "a watch was left behind"


def summaries(error: TensorCycleError) -> list[str]:
    return sorted(leak.summary for leak in error.report.leaks)


def test_a_block_without_leaks_passes() -> None:
    with forbid_tensor_cycles():
        node = Node()
        node.me = None


def test_a_leak_is_raised_with_its_report() -> None:
    with pytest.raises(TensorCycleError) as raised, forbid_tensor_cycles():
        Node()
    error = raised.value
    assert isinstance(error, AssertionError)
    (leak,) = error.report.leaks
    assert leak.summary == "Node.me → Node"
    assert leak.bytes_held == 2**20
    assert "LEAK 1 of 1" in str(error)
    assert "~~~ cut here" in str(error)


def test_what_is_still_in_use_is_no_leak() -> None:
    with forbid_tensor_cycles():
        node = Node()
    assert node.me is node


def test_garbage_made_before_is_not_blamed() -> None:
    Node()
    with forbid_tensor_cycles():
        pass
    Node()
    with pytest.raises(TensorCycleError) as raised, forbid_tensor_cycles():
        Other()
    assert summaries(raised.value) == ["Other.me → Other"]


class Heir:
    """Garbage whose finalizer makes a leak, in the collection that comes before the block."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        Node()


def test_nor_is_what_the_finalizers_of_such_garbage_leave() -> None:
    Heir()
    with forbid_tensor_cycles():
        pass


@pytest.mark.parametrize("collect", [gc.collect, lambda: gc.collect(0)], ids=["full", "young"])
@pytest.mark.parametrize("kind", [Node, Cleaner])
def test_collections_in_the_block_hide_nothing(
    collect: Callable[[], int], kind: type[Node]
) -> None:
    with pytest.raises(TensorCycleError) as raised, forbid_tensor_cycles():
        for _ in range(20):
            kind()
            collect()
    (leak,) = raised.value.report.leaks
    assert leak.count == 20
    assert leak.bytes_held == 20 * 2**20


def test_a_finalizer_at_the_end_hides_nothing() -> None:
    with pytest.raises(TensorCycleError), forbid_tensor_cycles():
        Cleaner()


def test_a_check_of_the_program_in_the_block_hides_nothing() -> None:
    with pytest.raises(TensorCycleError) as raised, forbid_tensor_cycles():
        Node()
        assert len(cyclescope.find_tensor_cycles(devices="any").leaks) == 1
        Node()
    (leak,) = raised.value.report.leaks
    assert leak.count == 2


def test_nested_blocks_each_see_their_own() -> None:
    with pytest.raises(TensorCycleError) as outer, forbid_tensor_cycles():
        Node()
        with pytest.raises(TensorCycleError) as inner, forbid_tensor_cycles():
            Other()
    assert summaries(inner.value) == ["Other.me → Other"]
    assert summaries(outer.value) == ["Node.me → Node", "Other.me → Other"]


def test_the_same_object_may_be_nested_in_itself() -> None:
    forbidden = forbid_tensor_cycles()
    with pytest.raises(TensorCycleError) as outer, forbidden:
        Node()
        with forbidden:
            pass
    assert summaries(outer.value) == ["Node.me → Node"]


def test_an_exception_of_the_block_passes_unchanged() -> None:
    error = KeyError("mine")
    with pytest.raises(KeyError) as raised, forbid_tensor_cycles():
        Node()
        raise error
    assert raised.value is error
    assert error.__context__ is None


def test_what_is_allowed() -> None:
    with forbid_tensor_cycles(ignore=["refers-to-itself"]):
        Node()
    with forbid_tensor_cycles(devices="cuda"):
        Node()
    with pytest.raises(ValueError, match="ignore"):
        forbid_tensor_cycles(ignore="torch")
    with pytest.raises(ValueError, match="gpus"):
        forbid_tensor_cycles(devices="gpus")


def test_decorated_functions_are_checked_at_each_call() -> None:
    @forbid_tensor_cycles()
    def step(kind: type[Node] | None, *, value: int = 3) -> int:
        """Make a step."""
        if kind is not None:
            kind()
        return value

    assert step.__name__ == "step"
    assert step.__doc__ == "Make a step."
    assert step(None, value=4) == 4
    for kind in (Node, Other):
        with pytest.raises(TensorCycleError) as raised:
            step(kind)
        assert summaries(raised.value) == [f"{kind.__name__}.me → {kind.__name__}"]
    assert step(None) == 3


def test_decorated_functions_may_recur_and_run_in_threads() -> None:
    @forbid_tensor_cycles()
    def count(n: int) -> int:
        return 0 if n == 0 else 1 + count(n - 1)

    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(count(3))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [3, 3, 3, 3]


def test_generators_are_refused_as_their_code_would_not_be_checked() -> None:
    def batches() -> Iterator[int]:
        yield 1

    class Batches:
        def __call__(self) -> Iterator[int]:
            yield 1

    for function in (batches, functools.partial(batches), Batches(), staticmethod(batches)):
        with pytest.raises(TypeError, match=r"(?i)batches.* is a generator"):
            forbid_tensor_cycles()(function)


def test_coroutines_are_checked_when_they_are_awaited() -> None:
    @forbid_tensor_cycles()
    async def serve(kind: type[Node] | None) -> str:
        await asyncio.sleep(0)
        if kind is not None:
            kind()
        return "served"

    async def program() -> None:
        assert await serve(None) == "served"
        with pytest.raises(TensorCycleError):
            await serve(Node)
        with pytest.raises(TensorCycleError) as raised:
            async with forbid_tensor_cycles():
                await asyncio.sleep(0)
                Other()
        assert summaries(raised.value) == ["Other.me → Other"]
        async with forbid_tensor_cycles():
            await asyncio.sleep(0)

    asyncio.run(program())


class Served:
    async def __call__(self) -> str:
        await asyncio.sleep(0)
        Node()
        return "served"


def serves() -> Coroutine[None, None, str]:
    return Served()()


@pytest.mark.parametrize(
    "function",
    [Served(), serves, functools.partial(Served())],
    ids=["object", "function", "partial"],
)
def test_so_are_coroutines_of_other_callables(function: Callable[..., Any]) -> None:
    checked = forbid_tensor_cycles()(function)

    async def program() -> None:
        task = asyncio.ensure_future(checked())
        with pytest.raises(TensorCycleError):
            await task

    asyncio.run(program())
    assert asyncio.run(forbid_tensor_cycles()(lambda: asyncio.sleep(0, "slept"))()) == "slept"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (Node, "Node is a class"),
        (property(len), "put the decorator below it"),
        (functools.cached_property(len), "put the decorator below it"),
        (5, "int is not a function"),
    ],
)
def test_what_cannot_be_checked_is_refused(given: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        forbid_tensor_cycles(devices="any")(given)


def test_the_decorator_needs_no_parentheses() -> None:
    @forbid_tensor_cycles
    def leaks() -> None:
        """It does."""
        Node()

    assert leaks.__doc__ == "It does."
    with pytest.raises(TensorCycleError):
        leaks()


def test_the_methods_of_a_class_may_be_decorated() -> None:
    class Trainer:
        @forbid_tensor_cycles()
        @staticmethod
        def static(number: int) -> int:
            return number

        @forbid_tensor_cycles()
        @classmethod
        def of_class(cls) -> str:
            Node()
            return cls.__name__

    assert Trainer().static(3) == Trainer.static(3) == 3
    with pytest.raises(TensorCycleError):
        Trainer.of_class()


def leaks_elsewhere(_: int) -> None:
    with forbid_tensor_cycles(devices="cpu"):
        Node()


class Own(TensorCycleError):
    def __init__(self, report: CycleReport, more: str) -> None:
        super().__init__(report)
        self.more = more


def test_the_error_comes_back_from_another_process() -> None:
    with (
        pytest.raises(TensorCycleError) as raised,
        futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        pool.submit(leaks_elsewhere, 1).result()
    assert summaries(raised.value) == ["Node.me → Node"]


def test_the_error_is_copied_and_pickled_with_what_was_added() -> None:
    with pytest.raises(TensorCycleError) as raised, forbid_tensor_cycles():
        Node()
    error = Own(raised.value.report, "more")
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is Own
        assert str(again) == str(error)
        assert summaries(again) == ["Node.me → Node"]
        assert again.more == "more"


def test_the_assertion_alone() -> None:
    assert_no_tensor_cycles()
    Node()
    with pytest.raises(TensorCycleError, match=r"Node\.me"):
        assert_no_tensor_cycles()
    Node()
    assert_no_tensor_cycles(ignore=["refers-to-itself"])


class Cases(cyclescope.NoTensorCycles, unittest.TestCase):
    __test__ = False  # pytest is not to run what fails on purpose

    def tearDown(self) -> None:
        self.made: object = None

    def test_clean(self) -> None:
        self.made = Node()
        self.made.me = None

    def test_leaks(self) -> None:
        Node()

    def test_leaks_what_its_fixture_held(self) -> None:
        self.made = Other()

    def test_fails_by_itself(self) -> None:
        Node()
        self.fail("its own failure")

    def test_skips(self) -> None:
        self.skipTest("no GPU")

    def test_leaks_and_skips(self) -> None:
        Node()
        self.skipTest("no GPU")

    @unittest.expectedFailure
    def test_leaks_and_fails_as_expected(self) -> None:
        Node()
        self.fail("as expected")

    @unittest.expectedFailure
    def test_fails_as_expected(self) -> None:
        self.fail("as expected")


class LeaksInSetUp(cyclescope.NoTensorCycles, unittest.TestCase):
    __test__ = False

    def setUp(self) -> None:
        Node()
        self.skipTest("no GPU")

    def test_nothing(self) -> None: ...


class Allowed(cyclescope.NoTensorCycles, unittest.IsolatedAsyncioTestCase):
    __test__ = False
    tensor_cycle_ignore = ("refers-to-itself",)

    async def test_leaks_what_is_allowed(self) -> None:
        await asyncio.sleep(0)
        Node()


class Awaiting(cyclescope.NoTensorCycles, unittest.IsolatedAsyncioTestCase):
    __test__ = False

    async def test_leaks(self) -> None:
        await asyncio.sleep(0)
        Node()

    async def test_leaks_and_skips(self) -> None:
        Node()
        self.skipTest("no GPU")

    async def test_skips(self) -> None:
        """Its task and the exception are in a cycle, which holds the frame."""
        array = numpy.ones(9)
        self.skipTest(f"no GPU {array}")

    @unittest.expectedFailure
    async def test_fails_as_expected(self) -> None:
        array = numpy.ones(9)
        self.fail(f"as expected {array}")


def outcome(case: type[unittest.TestCase], name: str) -> str:
    result = unittest.TestResult()
    case(name).run(result)
    assert not result.errors
    assert result.testsRun == 1
    return "".join(text for _, text in result.failures)


def test_unittest_cases_fail_that_leak() -> None:
    assert outcome(Cases, "test_clean") == ""
    assert outcome(Cases, "test_skips") == ""
    assert "LEAK 1 of 1" in outcome(Cases, "test_leaks")
    assert "Other.me" in outcome(Cases, "test_leaks_what_its_fixture_held")
    assert outcome(Allowed, "test_leaks_what_is_allowed") == ""
    assert "LEAK 1 of 1" in outcome(Awaiting, "test_leaks")


@pytest.mark.parametrize("case", [Cases, Awaiting, LeaksInSetUp])
def test_unittest_cases_that_are_skipped_or_fail_as_expected_are_checked(
    case: type[unittest.TestCase],
) -> None:
    leaky = [name for name in dir(case) if name.startswith("test_leaks_and")] or ["test_nothing"]
    for name in leaky:
        assert "LEAK 1 of 1" in outcome(case, name)
    clean = {"test_skips", "test_fails_as_expected"}.intersection(dir(case))
    assert not any(outcome(case, name) for name in clean)


def test_a_unittest_case_that_fails_by_itself_shows_that_alone() -> None:
    text = outcome(Cases, "test_fails_by_itself")
    assert "its own failure" in text
    assert "LEAK" not in text


def test_a_unittest_case_whose_bases_are_the_wrong_way_round_is_refused() -> None:
    with pytest.raises(TypeError, match=r"write class Wrong\(NoTensorCycles, TestCase\)"):

        class Wrong(unittest.TestCase, cyclescope.NoTensorCycles): ...  # type: ignore[misc]

    class Mixin(cyclescope.NoTensorCycles): ...

    class Right(Mixin, unittest.IsolatedAsyncioTestCase): ...

    with pytest.raises(TypeError, match=r"write class Other\(Mixin, IsolatedAsyncioTestCase\)"):

        class Other(unittest.IsolatedAsyncioTestCase, Mixin): ...


@pytest.mark.parametrize("name", ["tensor_cycles_ignore", "tensor_cycle_devcies"])
def test_a_misspelt_setting_of_a_unittest_case_is_refused(name: str) -> None:
    meant = "tensor_cycle_ignore" if "ignore" in name else "tensor_cycle_devices"
    with pytest.raises(TypeError, match=f"{name} is not a setting .* did you mean '{meant}'"):
        type("Wrong", (cyclescope.NoTensorCycles, unittest.TestCase), {name: ["torch"]})
    type("Right", (cyclescope.NoTensorCycles, unittest.TestCase), {"tensor_cycles_seen": 0})


def test_a_unittest_case_that_is_set_wrongly_is_an_error_of_the_test() -> None:
    class Wrong(cyclescope.NoTensorCycles, unittest.TestCase):
        tensor_cycle_devices = "gpus"

        def test_nothing(self) -> None: ...

    result = unittest.TestResult()
    Wrong("test_nothing").run(result)
    ((_, text),) = result.errors
    assert '"gpus" is not a device' in text


@pytest.mark.parametrize("reason", ["no driver", "hidden"])
def test_a_check_of_gpus_that_can_find_nothing_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    class OnGpus(cyclescope.NoTensorCycles, unittest.TestCase):
        tensor_cycle_devices = "cuda"

        def test_nothing(self) -> None: ...

    def unittest_case() -> None:
        result = unittest.TestResult()
        OnGpus("test_nothing").run(result)
        assert result.wasSuccessful()

    checks: list[tuple[Callable[[], object], str]] = [
        (lambda: assert_no_tensor_cycles(devices=["cuda:0"]), "assert_no_tensor_cycles(devices="),
        (lambda: forbid_tensor_cycles(devices="cuda"), "forbid_tensor_cycles(devices="),
        (lambda: cyclescope.find_tensor_cycles(devices="cuda"), "find_tensor_cycles(devices="),
        (unittest_case, "OnGpus.tensor_cycle_devices = "),
    ]
    monkeypatch.setattr(_native, "cuda_driver_present", lambda: reason == "hidden")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1" if reason == "hidden" else "0")
    for check, way_out in checks:
        monkeypatch.setattr(_watch, "_said", set())
        caplog.clear()
        check()
        check()
        (message,) = caplog.messages
        assert ("CUDA_VISIBLE_DEVICES is '-1'" in message) is (reason == "hidden")
        assert ("no CUDA driver" in message) is (reason == "no driver")
        assert f"{way_out}'any'" in message


def test_what_hides_gpus_counts_until_they_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "cuda_driver_present", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for in_use in (False, True):
        cuda = types.ModuleType("torch.cuda")
        cuda.is_initialized = lambda in_use=in_use: in_use  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
        assert (_devices.blindness(["cuda", "cuda:1"]) is None) is in_use
    monkeypatch.delitem(sys.modules, "torch.cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1234")
    assert _devices.blindness(["cuda"]) is None


def test_a_check_that_can_find_something_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_watch, "_said", set())
    monkeypatch.setattr(_native, "cuda_driver_present", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert_no_tensor_cycles(devices="cuda")
    monkeypatch.setattr(_native, "cuda_driver_present", lambda: False)
    assert_no_tensor_cycles(devices=["cuda", "cpu"])
    assert_no_tensor_cycles(devices="any")
    assert not caplog.messages


def test_garbage_that_no_collection_frees_is_found_by_a_check() -> None:
    """``gc.freeze()`` excludes it. A block may not have made it, and does not count it."""
    node = Node()
    gc.freeze()
    try:
        with forbid_tensor_cycles(devices="any"):
            del node
        with pytest.raises(TensorCycleError):
            assert_no_tensor_cycles(devices="any")
    finally:
        gc.unfreeze()
        gc.collect()
