"""What a user does to an object of the standard library is the user's, and is what is cut."""

from __future__ import annotations

import argparse
import collections
import contextlib
import logging
import queue
import string
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest

import cyclescope
from support.owners import WAYS, Way, check_is_no_librarys, payload

pytestmark = pytest.mark.usefixtures("collector_paused")


STANDARD: dict[str, Callable[[], Any]] = {
    "Namespace": argparse.Namespace,
    "parsed": lambda: argparse.ArgumentParser().parse_args([]),
    "Logger": lambda: logging.Logger("leaking"),
    "Handler": logging.NullHandler,
    "Formatter": logging.Formatter,
    "Thread": threading.Thread,
    "Timer": lambda: threading.Timer(1.0, print),
    "Event": threading.Event,
    "UserDict": collections.UserDict,
    "UserList": collections.UserList,
    "ChainMap": collections.ChainMap,
    "SimpleNamespace": types.SimpleNamespace,
    "Queue": queue.Queue,
    "ExitStack": contextlib.ExitStack,
    "Template": lambda: string.Template("text"),
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_a_user_sets_on_an_object_of_the_standard_library(way: Way) -> None:
    for name, new in STANDARD.items():

        def make(new: Callable[[], Any] = new) -> None:
            thing = new()
            thing.payload = payload()
            way(thing)

        try:
            check_is_no_librarys(make)
        except AssertionError as error:
            raise AssertionError(name) from error


def attributes(thing: Any) -> set[str]:
    """The names of all attributes that an object has."""
    return {f".{name}" for name in dir(thing)}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_a_user_set_is_what_is_cut(way: Way) -> None:
    for name, new in STANDARD.items():
        thing = new()
        thing.payload = payload()
        before = attributes(thing)
        way(thing)
        del thing
        check_cuts_are_no_part_of(before, name)


def check_cuts_are_no_part_of(before: set[str], name: str) -> None:
    """No cut is a reference that an object had before the program closed a cycle through it."""
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    assert report.leaks, name
    for cut in (cut for leak in report.leaks for cut in leak.cuts):
        assert cut.proven
        assert cut.edge not in before, f"{name}: {cut.edge} of {cut.owner}"


def queued() -> None:
    waiting: queue.Queue[Any] = queue.Queue()
    waiting.put(waiting)
    waiting.put(payload())


def queue_item() -> None:
    waiting: queue.Queue[Any] = queue.Queue()
    waiting.queue.append(waiting)
    waiting.payload = payload()  # type: ignore[attr-defined]


def thread_arguments() -> None:
    box: list[Any] = [payload()]
    box.append(threading.Thread(target=print, args=(box,)))


def thread_target() -> None:
    thread = threading.Thread()
    thread._target = thread.run  # type: ignore[attr-defined]
    thread.payload = payload()  # type: ignore[attr-defined]


def logger_handlers() -> None:
    logger = logging.Logger("leaking")
    handler = logging.NullHandler()
    handler.logger = logger  # type: ignore[attr-defined]
    logger.addHandler(handler)
    logger.payload = payload()  # type: ignore[attr-defined]


def user_dict_item() -> None:
    items = collections.UserDict[str, Any]()
    items["me"] = items
    items["payload"] = payload()


def chained_maps() -> None:
    maps: Any = collections.ChainMap({})
    maps["me"] = maps
    maps["payload"] = payload()


def exit_callback() -> None:
    stack = contextlib.ExitStack()
    stack.push(stack)
    stack.payload = payload()  # type: ignore[attr-defined]


def own_parent() -> None:
    logger = logging.Logger("leaking")
    logger.parent = logger
    logger.payload = payload()  # type: ignore[attr-defined]


GIVEN = [
    queued,
    queue_item,
    thread_arguments,
    thread_target,
    logger_handlers,
    user_dict_item,
    chained_maps,
    exit_callback,
    own_parent,
]


@pytest.mark.parametrize("make", GIVEN, ids=lambda make: make.__name__)
def test_what_a_user_gives_to_the_standard_library(make: Callable[[], None]) -> None:
    check_is_no_librarys(make)


class Settings(collections.UserDict[str, Any]):
    def __init__(self) -> None:
        super().__init__()
        self["me"] = self
        self["payload"] = payload()


class Layers(collections.UserList[Any]):
    def __init__(self) -> None:
        super().__init__()
        self.append(self)
        self.append(payload())


class Scopes(collections.ChainMap[str, Any]):
    def __init__(self) -> None:
        super().__init__({})
        self["me"] = self
        self["payload"] = payload()


class Adapter(logging.LoggerAdapter):  # type: ignore[type-arg]  # Python 3.10 has no argument
    def __init__(self) -> None:
        self.known: dict[str, object] = {}
        super().__init__(logging.getLogger("leaking"), self.known)
        self.known["me"] = self
        self.payload = payload()
        del self.known


@pytest.mark.parametrize("make", [Settings, Layers, Scopes, Adapter])
def test_what_a_class_of_the_program_puts_into_its_base_classs_container(
    make: Callable[[], None],
) -> None:
    """Without the container, which is the library's, the object would not work."""
    check_is_no_librarys(make)
    make()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert {cut.edge for cut in leak.cuts} <= {"['me']", "[0]"}
