"""No line is said to have stored what it did not, and no change is offered that frees nothing."""

from __future__ import annotations

import gc
import re
from typing import Any

import pytest

import cyclescope
from support.marks import needs_torch
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

HEADER = """
import concurrent.futures
import logging
import numpy


class Result:
    pass


def array():
    return numpy.zeros(5000)

"""


def leak_of(text: str, modules: Modules) -> tuple[cyclescope.Leak, str]:
    module: Any = modules.load("no_wrong_line", HEADER + text)
    gc.collect()
    module.go()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    return leak, " ".join(leak.to_text().split())


def test_no_patch_leaves_another_that_keeps_the_exception(modules: Modules) -> None:
    leak, text = leak_of(
        """
def go():
    big = array()
    future = concurrent.futures.Future()
    future.set_exception(KeyError(1))
    try:
        future.result()
    except KeyError as error:
        first = error
    return len(big)
""",
        modules,
    )
    assert "Delete `first`" not in text
    assert leak.patch is None, leak.patch


def test_a_class_with_its_own_setattr_may_store_something_else(modules: Modules) -> None:
    leak, text = leak_of(
        """
class Attr:
    def __init__(self, **given):
        for key, value in given.items():
            object.__setattr__(self, key, value)

    def __setattr__(self, key, value):
        super().__setattr__(key, value(self) if callable(value) else value)

def go():
    attr = Attr(array=array())
    attr.me = lambda it: it
""",
        modules,
    )
    assert leak.cuts[0].edge == ".me"
    assert leak.source is None, text


def test_of_two_statements_on_one_line_none_is_underlined(modules: Modules) -> None:
    leak, text = leak_of(
        """
class Peer:
    pass

def go():
    one, two = Peer(), Peer()
    one.array = array()
    one.peer = two; two.peer = one
""",
        modules,
    )
    assert leak.source is None, text


@needs_torch
def test_where_a_wrapper_calls_is_not_where_it_was_set(modules: Modules) -> None:
    leak, text = leak_of(
        """
import torch

def wrap(function):
    def inner(x):
        return function(x)  # called
    return inner

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(100, 100)
        self.layer.forward = wrap(self.layer.forward)

def go():
    Model()
""",
        modules,
    )
    assert "`Linear.forward` was set on the instance" in text
    assert leak.source is None or "# called" not in "".join(leak.source.lines)


STOPPED = {
    "a variable of several values": """
def go():
    state = {}
    big = array()
    try:
        raise ValueError
    except ValueError as error:
        state = dict(error=error)
    else:
        state = dict(error=None)
    return len(big)
""",
}


@pytest.mark.parametrize("case", STOPPED)
def test_the_line_that_a_function_had_come_to_is_not_the_one_to_change(
    case: str, modules: Modules
) -> None:
    module: Any = modules.load("no_wrong_line", HEADER + STOPPED[case])
    gc.collect()
    module.go()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    (leak,) = report.leaks
    text = " ".join(leak.to_text().split())
    assert leak.source is None, text
    lead = report.to_html().split('class="lead"')[1].split("</p>")[0]
    assert ", at no_wrong_line.py" not in lead, lead
    assert not re.search(r"Fix: \S+\.py:\d+:", text), text


def test_where_a_traceback_is_to_go_the_line_that_keeps_its_exception_is_named(
    modules: Modules,
) -> None:
    leak, text = leak_of(
        """
def step(big):
    try:
        raise ValueError
    except ValueError as error:
        result = Result()
        result.error = error
    return result

def go():
    kept = []
    for _ in range(2):
        kept.append(step(array()).error)
""",
        modules,
    )
    assert "Store the exception without its traceback" in text
    assert leak.source is not None
    marked = leak.source.lines[leak.source.marked - leak.source.line]
    assert marked.strip() == "result.error = error"


def test_what_a_class_of_a_library_sets_itself_is_not_to_be_removed(modules: Modules) -> None:
    _, text = leak_of(
        """
class Handler(logging.Handler):
    def __init__(self):
        super().__init__()
        self.array = array()
        self.records = []

    def emit(self, record):
        self.records.append(record)

def go():
    handler = Handler()
    logger = logging.Logger("own")
    logger.addHandler(handler)
    try:
        raise ValueError
    except ValueError:
        logger.exception("failed")
""",
        modules,
    )
    assert "emove `LogRecord.exc_info`" not in text
    assert "et `LogRecord.exc_info` to None" in text


def test_a_dict_that_gets_other_names_is_not_the_one_that_stored_it(modules: Modules) -> None:
    leak, text = leak_of(
        """
class Dyn:
    pass

def go():
    dyn = Dyn()
    dyn.array = array()
    dyn.__dict__ |= {"top": len}
    setattr(dyn, "left", dyn)
""",
        modules,
    )
    assert leak.cuts[0].edge == ".left"
    assert leak.source is not None, text
    assert "setattr" in "".join(leak.source.lines)


def test_two_classes_of_one_name_are_told_apart(modules: Modules) -> None:
    _, text = leak_of(
        """
class Model:
    pass

class Outer:
    class Model:
        pass

Outer.Model.__module__ = "elsewhere"

def go():
    one, other = Model(), Outer.Model()
    one.array = array()
    one.peer, other.peer = other, one
""",
        modules,
    )
    assert "another Model" not in text, text


LAYER = """
import torch

class Lin(torch.nn.Linear):
    pass

def go():
    layer = {kind}(30, 30)
    {first}
    {second}
"""
UNKNOWN = "the code that made it could not be determined"


@needs_torch
@pytest.mark.parametrize(
    ("first", "second", "is_shown"),
    [
        ("layer.unhooked = layer.forward", "", True),
        ("setattr(layer, 'unhooked', layer.forward)", "", True),
        ("layer.unhooked = layer.forward", "torch.nn.Identity().unhooked = array()", False),
        ("call = layer.forward", "layer.unhooked = call", False),
        ("other = layer", "layer.unhooked = other.forward", False),
    ],
)
def test_the_line_that_stores_a_librarys_method_on_its_object_is_shown(
    first: str, second: str, is_shown: bool, modules: Modules
) -> None:
    text = LAYER.format(kind="torch.nn.Linear", first=first, second=second)
    leak, told = leak_of(text, modules)
    assert (leak.source is not None) == is_shown
    assert (UNKNOWN in told) == (not is_shown)
    if leak.source is not None:
        shown = leak.source.lines[leak.source.marked - leak.source.line]
        assert shown.strip() == first


@needs_torch
def test_where_a_line_is_shown_its_code_is_not_called_unknown(modules: Modules) -> None:
    text = LAYER.format(kind="Lin", first="layer.unhooked = layer.forward", second="")
    leak, told = leak_of(text, modules)
    assert leak.source is not None
    assert UNKNOWN not in told
