"""What the standard library keeps where only C knows: named, and let go by what is said."""

from __future__ import annotations

import atexit
import builtins
import functools
import gc
import logging
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import cyclescope


class Model:
    """Something that is kept."""

    def run(self, *_: object) -> None:
        """Do nothing."""

    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033
    def size(self) -> int:
        """A cached method."""
        return 1

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def width(self) -> int:
        """A cached method with a limit."""
        return 1


other = Model()


def ask(target: weakref.ref[Model]) -> cyclescope.Retention:
    return cyclescope.why_alive(target())


def handled() -> tuple[Model, Callable[[], object]]:
    model = Model()
    signal.signal(signal.SIGTERM, lambda *_: model.run())
    return model, lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL)


def handled_by_method() -> tuple[Model, Callable[[], object]]:
    model = Model()
    signal.signal(signal.SIGINT, model.run)
    return model, lambda: signal.signal(signal.SIGINT, signal.default_int_handler)


def finalized() -> tuple[Model, Callable[[], object]]:
    model = Model()
    return model, weakref.finalize(other, model.run).detach


def finalized_with_keyword() -> tuple[Model, Callable[[], object]]:
    model = Model()
    return model, weakref.finalize(other, dict, end=model).detach


def cached() -> tuple[Model, Callable[[], object]]:
    model = Model()
    model.size()
    return model, lambda: Model.size.cache_clear()


def cached_with_limit() -> tuple[Model, Callable[[], object]]:
    model = Model()
    model.width()
    return model, lambda: Model.width.cache_clear()


NAME = __name__
PROGRAMS: dict[Any, tuple[str, str]] = {
    handled: (
        "signal handlers → [signal.SIGTERM]",
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)",
    ),
    handled_by_method: ("signal handlers → [signal.SIGINT]", "signal.signal(signal.SIGINT,"),
    finalized: ("finalizer `weakref.finalize` of Model → .func", "`detach()`"),
    finalized_with_keyword: ("finalizer `weakref.finalize` of Model → .kwargs", "`detach()`"),
    cached: (".size", f"`{NAME}.Model.size.cache_clear()`"),
    cached_with_limit: (".width", f"`{NAME}.Model.width.cache_clear()`"),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_keeper_is_named_and_what_is_said_frees_the_object(program: Any) -> None:
    words, release = PROGRAMS[program]
    model, let_go = program()
    target = weakref.ref(model)
    del model
    report = ask(target)
    (keeper,) = report.keepers
    assert report.is_enough, str(report)
    assert words in keeper.words.replace(f"{NAME}.", ""), str(report)
    assert release in keeper.release, str(report)
    assert keeper.release in report.to_text().replace("\n    ", " ")
    assert keeper.release.split("`")[1] in report.to_html()
    let_go()
    del let_go
    gc.collect()
    assert target() is None


def test_functions_that_run_at_the_end_are_named_or_guessed() -> None:
    model = Model()
    function = model.run
    atexit.register(function)
    target = weakref.ref(model)
    del model, function
    report = ask(target)
    if sys.version_info >= (3, 14):
        (keeper,) = report.keepers
        assert keeper.words.startswith("functions registered with atexit"), str(report)
        assert "atexit.unregister()" in keeper.release
    else:
        assert not report.is_enough
        assert any("may be `atexit`" in note for note in report.notes), str(report)
    again = target()
    assert again is not None
    atexit.unregister(again.run)
    del again
    assert target() is None


def test_what_a_function_at_the_end_leads_to_is_told_once_with_the_guess() -> None:
    model, held = Model(), Model()
    vars(model)["part"] = held
    atexit.register(model.run)
    part, target = weakref.ref(held), weakref.ref(model)
    del model, held
    report = ask(part)
    (path,) = report.paths
    assert path.alike <= 1, str(report)
    assert "atexit" in str(report)
    again = target()
    assert again is not None
    atexit.unregister(again.run)
    del again
    assert part() is None


def test_the_arguments_of_a_running_call_are_not_taken_for_a_registry() -> None:
    def inner(*batch: Model, **_: object) -> str:
        return str(cyclescope.why_alive(batch[0]))

    def step(*arguments: Model, **keywords: object) -> str:
        return inner(*arguments, **keywords)

    def decorated(*arguments: Model, **keywords: object) -> str:
        return step(*arguments, **keywords)

    assert "atexit" not in decorated(Model(), mask=1)
    assert "atexit" not in decorated(Model())
    begun, end = threading.Event(), threading.Event()

    def work(model: Model, _: int) -> None:
        begun.set()
        end.wait()

    model = Model()
    thread = threading.Thread(target=work, args=(model, 1))
    thread.start()
    target = weakref.ref(model)
    del model
    begun.wait()
    said = str(ask(target))
    end.set()
    thread.join()
    assert target() is None
    assert "atexit" not in said, said


def test_what_a_handler_keeps_is_its_loggers() -> None:
    class Keeping(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.records: list[logging.LogRecord] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.records.append(record)

    logging.getLogger("a.loop").addHandler(Keeping())
    logging.getLogger("a.loop").propagate = False
    model = Model()
    logging.getLogger("a.loop").error("%s", model)
    target = weakref.ref(model)
    del model
    report = ask(target)
    (keeper,) = report.keepers
    assert keeper.words.startswith("logger `a.loop` → .handlers"), str(report)
    assert all(path.root_words == "logger `a.loop`" for path in report.paths), str(report)
    logging.getLogger("a.loop").handlers.clear()
    assert target() is None


def test_what_an_interpreter_has_shown_last_is_no_notebooks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Model()
    monkeypatch.setattr(builtins, "_", model, raising=False)
    target = weakref.ref(model)
    del model
    (keeper,) = ask(target).keepers
    assert keeper.words == "module `builtins` → `_`"


def test_a_function_with_the_object_besides_is_not_let_go_by_clearing_the_cache() -> None:
    def make() -> tuple[Any, weakref.ref[Model]]:
        model = Model()

        @functools.cache
        def get() -> Model:
            return model

        get()
        return get, weakref.ref(model)

    kept["get"], target = make()
    report = ask(target)
    assert all("cache_clear" not in keeper.release for keeper in report.keepers), str(report)
    kept["get"].cache_clear()
    assert target() is not None
    kept.clear()


kept: dict[str, Any] = {}


def test_what_is_redacted_says_no_keys_of_the_program() -> None:
    program = """
import functools, weakref
import cyclescope
class Model: pass
caches = {"secret": functools.lru_cache(maxsize=None)(lambda model: 1)}
model = Model(); caches["secret"](model); target = weakref.ref(model); del model
report = cyclescope.why_alive(target(), redact=True)
assert [it.release for it in report.keepers] == ["call `cache_clear()` on the cached function"]
assert "secret" not in report.to_text()
"""
    import subprocess

    subprocess.run([sys.executable, "-c", program], check=True)
