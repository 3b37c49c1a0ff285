"""What the program gives to a library's cycle, and that leads back, is a cycle of the program's."""

from __future__ import annotations

import argparse
import configparser
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


def attribute_of_parser(app: Any) -> None:
    app.parser = configparser.ConfigParser()
    app.parser.settings = app


def function_of_parser(app: Any) -> None:
    app.parser = configparser.ConfigParser()
    app.parser.optionxform = app.parsed


def data_of_element(app: Any) -> None:
    app.document = minidom.parseString("<a><b/></a>")
    app.document.documentElement.setUserData("app", app, None)


def attribute_of_two_elements(app: Any) -> None:
    app.document = minidom.parseString("<a><b/><b/></a>")
    for element in app.document.getElementsByTagName("b"):
        element.widget = app


def variable_of_namespace(app: Any) -> None:
    app.names = {"host": app}
    exec("def run():\n    return host", app.names)


CLOSED_BY: dict[Callable[[Any], None], set[str]] = {
    attribute_of_parser: {".settings"},
    function_of_parser: {".optionxform"},
    data_of_element: {"[0]"},
    attribute_of_two_elements: {".widget"},
    variable_of_namespace: {"['host']"},
}


@pytest.mark.parametrize("give", CLOSED_BY, ids=lambda give: give.__name__)
def test_what_frees_everything_is_the_only_cut(give: Callable[[Any], None]) -> None:
    """The library's own cycles, and what the program has its object by, are no cause."""
    gc.collect()
    give(App())
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    (leak,) = report.leaks
    assert leak.library is None
    assert {cut.edge for cut in leak.cuts} == CLOSED_BY[give]
    assert "Also" not in leak.advice, leak.advice


def test_one_method_that_a_library_keeps_twice_is_one_leak() -> None:
    def make() -> None:
        app: Any = App()
        app.first = argparse.ArgumentParser("first")
        app.second = argparse.ArgumentParser("second")
        method = app.parsed
        app.first.register("type", "own", method)
        app.second.register("type", "own", method)

    gc.collect()
    make()
    leaks = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert len(leaks) == 1
    assert "Use a function that does not need the App" in leaks[0].advice
    assert "Also" not in leaks[0].advice
