"""What the program gives to a library's cycle, and that leads back, is a cycle of the program's."""

from __future__ import annotations

import argparse
import gc
import json
import optparse
import weakref
from collections.abc import Callable
from typing import Any
from xml.dom import minidom

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("collector_paused")


class App:
    def __init__(self) -> None:
        self.weights = numpy.zeros(1000)

    def parsed(self, text: str) -> int:
        return int(text) + len(self.weights)

    def called(self, *_: object) -> None:
        self.weights += 1


def type_of_argument(app: Any) -> None:
    app.parser = argparse.ArgumentParser("app")
    app.parser.add_argument("--number", type=app.parsed)


def closure_of_argument(app: Any) -> None:
    app.parser = argparse.ArgumentParser("app")
    app.parser.add_argument("--number", type=lambda text: app.parsed(text))


def default_function(app: Any) -> None:
    app.parser = argparse.ArgumentParser("app")
    commands = app.parser.add_subparsers()
    commands.add_parser("train").set_defaults(function=app.called)


def callback_of_option(app: Any) -> None:
    app.parser = optparse.OptionParser()
    app.parser.add_option("--number", action="callback", type="int", callback=app.called)


GIVEN = (type_of_argument, closure_of_argument, default_function, callback_of_option)


@pytest.mark.parametrize("give", GIVEN, ids=lambda give: give.__name__)
def test_what_a_parser_was_given_is_the_programs(give: Callable[[Any], None]) -> None:
    app = App()
    give(app)
    weights = weakref.ref(app.weights)
    del app
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    assert weights() is None
    (leak,) = report.leaks
    assert leak.library is None
    assert leak.pattern in ("bound-method-on-owner", "closure-captures-owner")
    (cut,) = leak.cuts
    assert cut.proven


def test_a_parser_with_a_tensor_of_its_own_is_the_librarys() -> None:
    def make() -> None:
        parser = argparse.ArgumentParser("app")
        parser.add_argument("--number", default=numpy.zeros(1000))

    gc.collect()
    make()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leak.library is not None
    assert leak.library.name == "the standard library"


def test_what_is_set_on_an_element_is_the_programs() -> None:
    def make() -> None:
        app: Any = App()
        app.document = minidom.parseString("<a><b/></a>")
        app.document.documentElement.widget = app

    gc.collect()
    make()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leak.library is None
    assert [cut.edge for cut in leak.cuts] == [".widget"]
    assert is_freed_after(lambda app: delattr(app.document.documentElement, "widget"))


def is_freed_after(fix: Callable[[Any], None]) -> bool:
    app: Any = App()
    app.document = minidom.parseString("<a><b/></a>")
    app.document.documentElement.widget = app
    fix(app)
    weights = weakref.ref(app.weights)
    del app
    return weights() is None


def test_a_leak_beside_what_a_parser_was_given_is_another() -> None:
    def make() -> None:
        app: Any = App()
        type_of_argument(app)
        app.encoder = json.JSONEncoder(default=app.called)

    gc.collect()
    make()
    leaks = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert [leak.library for leak in leaks] == [None, None]
    assert ".type" in {cut.edge for leak in leaks for cut in leak.cuts}
