"""What keeps a deleted model alive: named, with what lets go, and doing that frees it."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterator

import pytest

import cyclescope
from support.marks import needs_torch

pytestmark = needs_torch
torch = pytest.importorskip("torch")
held = pytest.importorskip("support.held_models")


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    yield
    held.kept.clear()
    gc.collect()


@pytest.fixture(autouse=True, scope="module")
def nothing_left() -> Iterator[None]:
    """Other tests in this process count all memory."""
    gc.collect()
    yield
    held.other = None


def ask(target: weakref.ref[object]) -> cyclescope.Retention:
    return cyclescope.why_alive(target())


@pytest.mark.parametrize("name", list(held.PROGRAMS))
def test_the_keeper_is_named_and_what_is_said_frees_the_model(name: str) -> None:
    program, words, release = held.PROGRAMS[name]
    model, let_go = program()
    target = weakref.ref(model)
    tensors = [*model.parameters()] if isinstance(model, torch.nn.Module) else [model]
    places = {tensor.data_ptr() for tensor in tensors}
    del model, tensors
    gc.collect()
    owners = [it.owner for it in cyclescope.heap().buffers if it.pointer in places]
    assert owners
    assert all(words in owner for owner in owners), owners
    report = ask(target)
    keepers = report.keepers
    assert keepers, str(report)
    assert report.is_enough, str(report)
    assert any(words in keeper.words for keeper in keepers), str(report)
    if release:
        assert all(release in keeper.release for keeper in keepers), str(report)
    assert all(keeper.release in str(report).replace("\n    ", " ") for keeper in keepers)
    del report, keepers
    let_go()
    gc.collect()
    assert target() is None, ask(target)


@pytest.mark.parametrize("name", list(held.MODES))
def test_what_a_with_block_keeps_is_named(name: str) -> None:
    make, words, release = held.MODES[name]
    targets: list[weakref.ref[object]] = []

    def model() -> object:
        made = held.Net()
        targets.append(weakref.ref(made))
        return made

    with make(model()):
        report = ask(targets[0])
    assert report.is_enough, str(report)
    assert any(words in keeper.words for keeper in report.keepers), str(report)
    assert all(release in keeper.release for keeper in report.keepers), str(report)
    gc.collect()
    assert targets[0]() is None


def test_a_mode_that_is_kept_besides_is_not_let_go_by_leaving_its_block() -> None:
    mode = held.Mode(held.Net())
    target = weakref.ref(mode.net)
    with mode:
        report = ask(target)
    assert [keeper.release for keeper in report.keepers] == [""], str(report)
    assert target() is not None


def test_a_function_with_the_model_besides_is_not_let_go_by_clearing_the_cache() -> None:
    def load() -> object:
        made = held.Net()

        @functools.cache
        def get() -> object:
            return made

        get()
        return get

    held.kept["get"] = get = load()
    target = weakref.ref(get())  # type: ignore[operator]
    del get
    report = ask(target)
    assert all("cache_clear" not in keeper.release for keeper in report.keepers), str(report)
    held.kept["get"].cache_clear()
    assert target() is not None


def test_functions_that_run_at_the_end_are_a_guess_where_c_does_not_tell() -> None:
    model, let_go = held.at_exit()
    target = weakref.ref(model)
    del model
    report = ask(target)
    words = " ".join([*report.notes, *(keeper.release for keeper in report.keepers)])
    assert "atexit.unregister" in words, str(report)
    let_go()
    assert target() is None
