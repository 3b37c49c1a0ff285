"""What a program gives a library's object that leads back to it: only the statement says where."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

import cyclescope
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

PROGRAM = """
import functools
import logging
import numpy
import queue
import threading


def make():
    thread = threading.Thread()
    thread.data = numpy.zeros(1024)
    {give}
"""
GIVEN = {
    "itself": "thread.leads_back = thread  # here",
    "a list": "thread.leads_back = [thread]  # here",
    "an item of a tuple": "thread.leads_back = (1, thread)  # here",
    "a value": "thread.leads_back = {'me': thread}  # here",
    "an object that is made for it": "thread.leads_back = logging.LoggerAdapter(thread)  # here",
    "a method of its own": "thread.leads_back = thread.getName  # here",
}
UNKNOWN = {
    "an object that may be any": "other = [thread]; thread.leads_back = other",
    "another statement": "other = thread.leads_back = [thread]\n    other[0].leads_back = other",
    "another item": "thread.leads_back = [thread, 1][::-1]",
}


def leak_of(text: str, name: str, modules: Modules) -> cyclescope.Leak:
    make: Callable[[], object] = getattr(modules.load("own_of_library", text), name)
    gc.collect()
    make()
    (leak,) = cyclescope.find_tensor_cycles(devices="any").leaks
    return leak


def said(give: str, modules: Modules) -> tuple[str, int]:
    """The report of a program's leak, and the line that is marked in the program."""
    text = PROGRAM.replace("{give}", give)
    leak = leak_of(text, "make", modules)
    line = text[: text.index("# here")].count("\n") + 1 if "# here" in text else 0
    return " ".join(leak.to_text().split()), line


@pytest.mark.parametrize("name", GIVEN)
def test_the_statement_that_leads_back_is_the_line(name: str, modules: Modules) -> None:
    text, line = said(GIVEN[name], modules)
    assert f"own_of_library.py:{line}: " in text.split(" Fix: ")[1], text


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_statement_that_shows_nothing_is_not_named(name: str, modules: Modules) -> None:
    text, _ = said(UNKNOWN[name], modules)
    assert "own_of_library.py:" not in text, text


def test_a_statement_is_not_named_where_other_code_sets_the_name_it_is_given(
    modules: Modules,
) -> None:
    helper = "def attach(object, **all):\n    for name in all: setattr(object, name, all[name])\n"
    modules.load("sets_any_attribute", helper)
    other = "other = logging.Handler(); other.leads_back = [other]; del other.leads_back"
    give = f"{other}\n    sets_any_attribute.attach(thread, leads_back=[thread])"
    text = PROGRAM.replace("{give}", give)
    leak = leak_of("import sets_any_attribute\n" + text, "make", modules)
    assert "own_of_library.py:" not in leak.to_text()


QUEUED = """
import numpy
import queue


class Buffer:
    def __init__(self):
        self.data = numpy.zeros(1024)
        self.calls = queue.Queue()
        self.calls.put({item})  # here

    def reset(self):
        self.data[:] = 0
"""


@pytest.mark.parametrize(
    "item", ["self.reset", "('init', self.reset)", "{'call': [self.reset]}", "[(1, self.reset)]"]
)
def test_a_method_within_what_is_given_to_a_queue_is_put_there(item: str, modules: Modules) -> None:
    text = QUEUED.replace("{item}", item)
    leak = leak_of(text, "Buffer", modules)
    line = text[: text.index("# here")].count("\n") + 1
    assert leak.source is not None
    assert leak.source.marked == line


def test_a_wrapper_with_a_counter_is_told_as_the_forward_that_it_is(modules: Modules) -> None:
    pytest.importorskip("torch", reason="modules of PyTorch")
    text = """
import torch


def trace(layer):
    forward = layer.forward

    def traced(*arguments):
        traced.calls += 1
        return forward(*arguments)

    traced.calls = 0
    layer.forward = traced


def make():
    trace(torch.nn.Linear(64, 64))
"""
    leak = leak_of(text, "make", modules)
    assert "Let the function `traced` not capture" not in leak.advice
    assert "Define `forward` in a subclass instead, or let the function `traced` keep neither" in (
        leak.advice
    )
