"""What one line has closed is one leak, told at that line, by however many ways it leads back."""

from __future__ import annotations

import codecs
import io
import logging
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from support.owners import found, payload

pytestmark = pytest.mark.usefixtures("collector_paused")


class Panel:
    def __init__(self, subject: Any) -> None:
        self.subject = subject


class View:
    def __init__(self) -> None:
        self.mesh = payload()


def set_first(view: Any) -> None:
    view.root = logging.Formatter()
    view.root.scene = view
    view.panel = Panel(view.root)


def set_last(view: Any) -> None:
    view.root = logging.Formatter()
    view.panel = Panel(view.root)
    view.other = [view.root]
    view.root.scene = view


def set_by_name(view: Any) -> None:
    view.root = logging.Formatter()
    view.panel = Panel(view.root)
    setattr(view.root, "scene", view)  # noqa: B010


@pytest.mark.parametrize("close", [set_first, set_last, set_by_name])
def test_what_is_set_on_a_librarys_object_is_one_leak(close: Callable[[Any], None]) -> None:
    def make() -> None:
        close(View())

    (leak,) = found(make).leaks
    assert [cut.edge for cut in leak.cuts] == [".scene"]
    assert "Remove `Formatter.scene`" in leak.advice, leak.advice
    assert not leak.library


def test_what_is_set_on_a_librarys_object_frees_it() -> None:
    view: Any = View()
    set_last(view)
    root, mesh = view.root, weakref.ref(view.mesh)
    del view
    del root.scene
    assert mesh() is None


FUNCTIONS = "\n".join(f"def step_{at}(x):\n    return x + table" for at in range(6))
CLASS = "class Tool:\n    def run(self):\n        return table\n    stop = lambda self: table"
OTHERS = "steps = [lambda: table, lambda: step_0]\nclass K:\n    s = staticmethod(lambda: table)"
NAMESPACES = {
    "functions": FUNCTIONS,
    "both": f"{FUNCTIONS}\n{CLASS}",
    "others": f"{FUNCTIONS}\n{OTHERS}",
}


@pytest.mark.parametrize("text", NAMESPACES.values(), ids=NAMESPACES)
@pytest.mark.parametrize("as_module", [False, True])
def test_a_namespace_is_one_leak(text: str, as_module: bool) -> None:
    def make() -> None:
        namespace: dict[str, Any] = {"table": payload()}
        if as_module:
            namespace = vars(types.ModuleType("plug"))
            namespace["table"] = payload()
        exec(text, namespace)

    (leak,) = found(make).leaks
    assert leak.pattern == "namespace-made-at-run-time"
    assert "Empty the namespace" in leak.advice
    assert "Also" not in leak.advice, leak.advice


def test_an_emptied_namespace_is_freed() -> None:
    namespace: dict[str, Any] = {"table": payload()}
    exec(NAMESPACES["functions"], namespace)
    table = weakref.ref(namespace["table"])
    namespace.clear()
    del namespace
    assert table() is None


class Log:
    def __init__(self) -> None:
        self.levels = payload()
        self.writer = codecs.getwriter("utf-8")(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> int:
        return len(data)


def test_a_librarys_class_without_a_function_is_the_librarys() -> None:
    (leak,) = found(Log).leaks
    assert [cut.edge for cut in leak.cuts] == [".writer"], leak.advice
    assert "`Log.writer` is a StreamWriter" in leak.advice
    assert leak.cuts[0].location


class Owner:
    def __init__(self, *, is_twice: bool) -> None:
        self.levels = payload()
        self.reader = io.TextIOWrapper(io.BufferedReader(Raw(self)))
        self.by_name = {"reader": self.reader} if is_twice else {}


class Raw(io.RawIOBase):
    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self.owned_by = owner

    def readable(self) -> bool:
        return True


@pytest.mark.parametrize("is_twice", [False, True])
def test_what_a_reader_in_c_has_cannot_be_taken_away(is_twice: bool) -> None:
    for leak in found(lambda: Owner(is_twice=is_twice)).leaks:
        assert "TextIOWrapper.buffer" not in leak.advice, leak.advice
        assert "BufferedReader.raw" not in leak.advice, leak.advice


class Logged:
    def __init__(self) -> None:
        self.levels = payload()
        self.handler = logging.StreamHandler(Stream(self))
        self.by_name = {"handler": self.handler}


class Stream:
    def __init__(self, owner: Logged) -> None:
        self.owned_by = owner

    def write(self, text: str) -> int:
        return len(text)


def test_what_a_librarys_constructor_stores_is_not_to_be_taken_away() -> None:
    for leak in found(Logged).leaks:
        assert "StreamHandler.stream" not in leak.advice, leak.advice
