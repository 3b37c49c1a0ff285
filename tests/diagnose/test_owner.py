"""Whose leak is it? Programs in which the user, a library or a second library closes the cycle."""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import gc
import importlib
import itertools
import logging
import queue
import random
import string
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("small_heap", "collector_paused")

Way = Callable[[Any], None]


def payload() -> numpy.ndarray[Any, Any]:
    return numpy.zeros(2**20, numpy.uint8)


# --- Libraries, as an installer leaves them ---------------------------------------------------

#: Ways to close a cycle, as a library's own code: ``self`` is the object, ``kept`` the attribute.
SNIPPETS = {
    "itself": "self.kept = self",
    "list": "self.kept = [self]",
    "tuple": "self.kept = ('me', self)",
    "dict": "self.kept = {'me': self}",
    "nested": "self.kept = {'all': [self]}",
    "appended": "self.kept = []\nself.kept.append(self)",
    "keyed": "self.kept = {}\nself.kept['me'] = self",
    "method": "self.kept = self.run",
    "methods": "self.kept = [self.run, self.size]",
    "partial": "self.kept = functools.partial(call, self)",
    "lambda": "self.kept = lambda: self",
    "closure": "def inner():\n    return self\nself.kept = inner",
    "child": "self.kept = Child(self)",
    "child with more": "self.kept = Child(self, given)",
    "children": "self.kept = []\nself.kept.append(Child(self))",
    "linked child": "child = Child(None)\nchild.parent = self\nself.kept = child",
    "by name": "setattr(self, 'kept', self)",
    "by object": "object.__setattr__(self, 'kept', self)",
    "registered method": "self.hooks = []\nself.register(self.run)",
    "registered lambda": "self.hooks = []\nself.register(lambda: self)",
    "property": "child = Child(None)\nchild.owner = self\nself.kept = child",
    "generator": "self.kept = self.each()\nnext(self.kept)",
}

#: Where the library's code does so: ``{body}`` is it.
PLACES = {
    "constructor": "def __init__(self, given=None):\n    super().__init__()\n{body}",
    "method": "def __init__(self, given=None):\n    super().__init__()\n"
    "    self.setup(given)\n\ndef setup(self, given):\n{body}",
    "condition": "def __init__(self, given=None):\n    super().__init__()\n"
    "    if given is not None or True:\n        self.setup()\n"
    "\ndef setup(self, given=3):\n{body}",
    "decorated": "def __init__(self, given=None):\n    super().__init__()\n"
    "    self.setup(given)\n\n@decorated\ndef setup(self, given):\n{body}",
}

#: What the class is.
KINDS = {
    "plain": "class Thing:",
    "slots": "class Thing:\n    __slots__ = ('kept', 'payload', 'hooks', '__weakref__')",
    "derived": "class Base:\n    pass\n\n\nclass Thing(Base):",
    "dictionary": "class Thing(dict):",
    "metaclass": "class Meta(type):\n    pass\n\n\nclass Thing(metaclass=Meta):",
    "setter": "class Thing:\n    def __setattr__(self, name, value):\n"
    "        object.__setattr__(self, name, value)\n",
    "getter": "class Thing:\n    def __getattr__(self, name):\n"
    "        raise AttributeError(name)\n",
}

COMMON = """
import functools


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def call(thing):
    return thing


class Child:
    def __init__(self, parent, more=None):
        self.parent = parent
        self.more = more

    @property
    def owner(self):
        return self._owner

    @owner.setter
    def owner(self, value):
        self._owner = value
"""

METHODS = """
def run(self):
    return 1

def size(self):
    return 2

def each(self):
    yield self
    yield 1

def register(self, hook):
    self.hooks.append(hook)
"""


def indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line if line else line for line in text.split("\n"))


def source(kind: str, place: str, snippet: str) -> str:
    """The text of a library whose ``Thing`` closes a cycle by itself."""
    method = PLACES[place].format(body=indented(SNIPPETS[snippet], 4))
    return f"{COMMON}\n\n{KINDS[kind]}\n{indented(METHODS + method, 4)}\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Installs a stand-in for a library and imports it."""
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(folder)
    names: list[str] = []

    def write(name: str, text: str) -> Any:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)
        (folder / f"{name}-1.0.dist-info").mkdir()
        importlib.invalidate_caches()
        names.append(name)
        return importlib.import_module(name)

    yield write
    for name in names:
        sys.modules.pop(name, None)


def found(make: Callable[[], object]) -> cyclescope.CycleReport:
    """The leaks that a call leaves behind."""
    gc.collect()
    make()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    assert report.leaks, "the program is to leak"
    return report


def check_is_of(library: str, make: Callable[[], object]) -> None:
    report = found(make)
    names = [leak.library.name if leak.library else None for leak in report.leaks]
    assert set(names) == {library}, report
    assert report.yours == []
    make()
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False, ignore=[library]).leaks == []


def check_is_no_librarys(
    make: Callable[[], object], others: tuple[str, ...] = ("the standard library", "torch")
) -> None:
    report = found(make)
    assert [leak.library for leak in report.leaks] == [None] * len(report.leaks), report
    text = " ".join(str(report).split())
    assert "In a library" not in text
    assert "not by your code" not in text
    make()
    still = cyclescope.find_tensor_cycles(devices="any", frozen=False, ignore=list(others))
    assert len(still.leaks) == len(report.leaks)


def test_an_annotation_makes_no_reference(install: Callable[..., Any]) -> None:
    """From 3.14 on, a function of the class makes a dict of them, by names of attributes."""
    text = "class Layer:\n    forward: object\n    def call(self):\n        return self\n"
    library = install("annotated", text)

    def set_forward() -> None:
        layer = library.Layer()
        layer.array = numpy.ones(5000)
        layer.forward = layer.call

    check_is_no_librarys(set_forward)


# --- What a library's own code makes is the library's ------------------------------------------


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_what_a_library_makes_is_its_own(snippet: str, install: Callable[..., Any]) -> None:
    module = install("standin_one", source("plain", "constructor", snippet))

    def make() -> None:
        thing = module.Thing()
        thing.payload = payload()

    check_is_of("standin_one", make)


def combinations(count: int, seed: int) -> list[tuple[str, str, str]]:
    every = list(itertools.product(KINDS, PLACES, SNIPPETS))
    return random.Random(seed).sample(every, count)


def test_whatever_the_class_is_and_wherever_its_code_is(install: Callable[..., Any]) -> None:
    for number, (kind, place, snippet) in enumerate(combinations(80, 1)):
        name = f"standin_{number}"
        module = install(name, source(kind, place, snippet))

        def make(module: Any = module) -> None:
            thing = module.Thing()
            thing.payload = payload()

        try:
            check_is_of(name, make)
        except AssertionError as error:
            raise AssertionError(f"{kind}, {place}, {snippet}") from error


# --- What a user does to a library's object is not the library's -------------------------------


def hold_in_list(thing: Any) -> None:
    thing.extra = [thing]


def hold_in_dict(thing: Any) -> None:
    thing.extra = {"thing": thing}


def hold_itself(thing: Any) -> None:
    thing.extra = thing


def set_by_name(thing: Any) -> None:
    setattr(thing, "ex" + "tra", (thing,))


def method_named(thing: Any) -> Any:
    """A bound method of the object whose function is its library's."""
    for base in type(thing).__mro__:
        for name, value in vars(base).items():
            if isinstance(value, types.FunctionType) and not name.startswith("__"):
                return getattr(thing, name)
    return functools.partial(object.__repr__, thing)


def hold_method(thing: Any) -> None:
    thing.extra = method_named(thing)


def hold_partial(thing: Any) -> None:
    method = method_named(thing)
    thing.extra = functools.partial(getattr(method, "__func__", method), thing)


def hold_lambda(thing: Any) -> None:
    thing.extra = lambda: thing


def hold_closure(thing: Any) -> None:
    def inner() -> object:
        return thing

    thing.extra = inner


def hold_child(thing: Any) -> None:
    child = types.SimpleNamespace(owner=thing)
    thing.extra = child


def hold_another(thing: Any) -> None:
    other = argparse.Namespace()
    other.back = thing
    thing.extra = other


def hold_queue(thing: Any) -> None:
    waiting: queue.Queue[Any] = queue.Queue()
    waiting.put(thing)
    thing.extra = waiting


WAYS: list[Way] = [
    hold_in_list,
    hold_in_dict,
    hold_itself,
    set_by_name,
    hold_method,
    hold_partial,
    hold_lambda,
    hold_closure,
    hold_child,
    hold_another,
    hold_queue,
]

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


PATIENT = """
import dataclasses


class Thing:
    def __init__(self, parent=None, *hooks):
        self.parent = parent
        self.hooks = list(hooks)
        self.items = []
        self.named = {}
        self.child = None

    def run(self):
        return self.size() + len(self.hooks)

    def size(self):
        return len(self.items)

    def add(self, item):
        self.items.append(item)

    def name(self, key, item):
        self.named[key] = item

    def register(self, hook):
        self.hooks.append(hook)

    def adopt(self, child):
        self.child = child


class Slotted:
    __slots__ = ("run_with", "payload", "extra", "__weakref__")

    def run(self):
        return self.run_with


class Setter(Thing):
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


class Getter(Thing):
    def __getattr__(self, name):
        raise AttributeError(name)


class Meta(type):
    pass


class Made(metaclass=Meta):
    def run(self):
        return 1


class Mapping(dict):
    def run(self):
        return len(self)


@dataclasses.dataclass
class Data:
    parent: object = None
    hooks: list = dataclasses.field(default_factory=list)

    def run(self):
        return self.parent
"""


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_a_user_sets_on_an_object_of_a_library(way: Way, install: Callable[..., Any]) -> None:
    module = install("standin_patient", PATIENT)
    for kind in ["Thing", "Slotted", "Setter", "Getter", "Made", "Mapping", "Data"]:

        def make(kind: str = kind) -> None:
            thing = getattr(module, kind)()
            thing.payload = payload()
            way(thing)

        try:
            check_is_no_librarys(make, ("standin_patient", "the standard library"))
        except AssertionError as error:
            raise AssertionError(kind) from error


GIFTS: dict[str, Callable[[Any, Any], object]] = {
    "item": lambda thing, _: thing.items.append(thing),
    "added": lambda thing, _: thing.add(thing),
    "named": lambda thing, _: thing.name("me", thing),
    "key": lambda thing, _: thing.named.update(me=thing),
    "parent": lambda thing, _: setattr(thing, "parent", thing),
    "hook": lambda thing, _: thing.register(thing.run),
    "lambda": lambda thing, _: thing.register(lambda: thing),
    "partial": lambda thing, kind: thing.register(functools.partial(kind.run, thing)),
    "adopted": lambda thing, kind: thing.adopt(kind(thing)),
    "adopted later": lambda thing, kind: setattr(thing, "child", kind(thing)),
    "two": lambda thing, kind: (lambda other: (thing.add(other), other.add(thing)))(kind()),
    "replaced": lambda thing, _: setattr(thing, "run", thing.run),
}


@pytest.mark.parametrize("gift", GIFTS)
def test_what_a_user_gives_to_a_library(gift: str, install: Callable[..., Any]) -> None:
    module = install("standin_patient", PATIENT)

    def make() -> None:
        thing = module.Thing()
        thing.payload = payload()
        GIFTS[gift](thing, module.Thing)

    check_is_no_librarys(make, ("standin_patient", "the standard library"))


def test_what_nobody_is_known_to_have_made_is_said_to_be_so(install: Callable[..., Any]) -> None:
    module = install("standin_patient", PATIENT)

    def make() -> None:
        thing = module.Thing()
        thing.payload = payload()
        hold_in_list(thing)

    unknown = "the code that made it could not be determined"
    assert unknown in " ".join(str(found(make)).split())

    def known() -> None:
        thing = module.Thing()
        thing.payload = payload()
        hold_lambda(thing)

    assert unknown not in " ".join(str(found(known)).split())


# --- Classes of the user, derived from a library's ---------------------------------------------


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_what_a_derived_class_does_is_the_users(snippet: str, install: Callable[..., Any]) -> None:
    install("standin_patient", PATIENT + COMMON)
    body = indented(SNIPPETS[snippet], 8)
    text = (
        "import functools\n\nfrom standin_patient import Child, Thing, call\n\n\n"
        "class Mine(Thing):\n    def __init__(self, given=None):\n        super().__init__()\n"
        f"{body}\n\n    def each(self):\n        yield self\n        yield 1\n"
    )
    path = Path(__file__).with_name("mine.py")
    mine: dict[str, Any] = {"__name__": "mine"}
    exec(compile(text, str(path), "exec"), mine)

    def make() -> None:
        thing = mine["Mine"]()
        thing.payload = payload()

    check_is_no_librarys(make, ("standin_patient", "the standard library"))


def test_what_the_base_class_does_is_the_librarys(install: Callable[..., Any]) -> None:
    for number, snippet in enumerate(SNIPPETS):
        name = f"standin_base_{number}"
        module = install(name, source("plain", "constructor", snippet))

        def make(module: Any = module) -> None:
            class Mine(module.Thing):  # type: ignore[misc]
                def __init__(self) -> None:
                    super().__init__()
                    self.payload = payload()

            Mine()

        # The class is a cycle too, but holds nothing.
        try:
            check_is_of(name, make)
        except AssertionError as error:
            raise AssertionError(snippet) from error


# --- Two libraries ------------------------------------------------------------------------------

PATCHES = {
    "wrapped": """
def patch(thing):
    old = thing.run

    def wrapper(*args):
        return old(*args)

    thing.run = wrapper
""",
    "partial": """
def patch(thing, hook=None):
    old = thing._old_run = thing.run

    def wrapper(thing, *args):
        return old(*args)

    if hook is not None:
        hook(thing)
    thing.run = functools.update_wrapper(functools.partial(wrapper, thing), old)
""",
    "bound": """
def fused(self, *args):
    return 1


def patch(thing):
    thing.run = types.MethodType(fused, thing)
""",
    "hooked": """
class Hook:
    def __init__(self, thing):
        self.thing = thing
        thing.register(self.call)

    def call(self):
        return self.thing


def patch(thing):
    Hook(thing)
""",
    "hook of a closure": """
def patch(thing):
    def hook():
        return thing

    thing.register(hook)
""",
    "lambda": """
def patch(thing):
    thing.extra = lambda: thing
""",
}


@pytest.mark.parametrize("patch", PATCHES)
def test_what_one_library_does_to_another(patch: str, install: Callable[..., Any]) -> None:
    patient = install("standin_patient", PATIENT)
    surgeon = install("standin_surgeon", f"import functools\nimport types\n{PATCHES[patch]}")

    def make() -> None:
        thing = patient.Thing()
        thing.payload = payload()
        surgeon.patch(thing)

    check_is_of("standin_surgeon", make)


# --- Local variables that a library hands out -----------------------------------------------------

#: How the base class of a callback keeps what it is given.
KEEPERS = {
    "stored": "self.locals = variables",
    "updated": "self.locals.update(variables)",
    "both": "if self.locals:\n            self.locals.update(variables)\n        else:\n"
    "            self.locals = variables",
}

HANDING = """
class Callback:
    def __init__(self):
        self.locals = {{}}

    def tell(self, variables, more=None):
        {keeper}

    def step(self):
        return True


class Several(Callback):
    def __init__(self, *callbacks):
        super().__init__()
        self.callbacks = callbacks


class Algorithm:
    def learn(self, steps, callback):
        before = steps
        for step in range(steps):
            callback.tell(locals(), globals())
            callback.step()
        return before


class PPO(Algorithm):
    def learn(self, steps, callback=None):
        return super().learn(steps, callback)
"""


def handing_programs(module: Any) -> dict[str, tuple[bool, Callable[[], object]]]:
    """Programs that train, and whether the library alone makes the cycle."""

    class Mine(module.Callback):  # type: ignore[misc]
        def step(self) -> bool:
            return bool(self.locals)

    class Told(module.Callback):  # type: ignore[misc]
        def tell(self, variables: dict[str, Any], more: object = None) -> None:
            self.locals = variables

    class Stepping(module.PPO):  # type: ignore[misc]
        def learn(self, steps: int, callback: Any) -> None:
            callback.tell(locals())

    def learn(callback: Any, kind: Any = module.PPO) -> None:
        algorithm = kind()
        algorithm.payload = payload()
        algorithm.learn(2, callback)

    def loop(callback: Any) -> None:
        network = payload()
        callback.tell(locals())
        del network

    def given(callback: Any) -> None:
        algorithm = module.PPO()
        algorithm.payload = payload()
        callback.tell({"self": algorithm, "callback": callback})

    def renamed(callback: Any) -> None:
        algorithm = module.PPO()
        algorithm.payload = payload()
        callback.tell({"self": algorithm, "steps": 1, "callback": None, "mine": callback})

    return {
        "of the library": (True, lambda: learn(module.Callback())),
        "of a derived class": (True, lambda: learn(Mine())),
        "of several": (True, lambda: learn(module.Several(module.Callback()))),
        "kept by the program": (False, lambda: learn(Told())),
        "of the program's algorithm": (False, lambda: learn(module.Callback(), Stepping)),
        "of the program's function": (False, lambda: loop(module.Callback())),
        "of the program's making": (False, lambda: given(module.Callback())),
        "with another name": (False, lambda: renamed(module.Callback())),
    }


@pytest.mark.parametrize("keeper", KEEPERS)
def test_local_variables_that_a_library_hands_out(keeper: str, install: Callable[..., Any]) -> None:
    module = install("standin_handing", HANDING.format(keeper=KEEPERS[keeper]))
    wrong = []
    for name, (is_of_library, make) in handing_programs(module).items():
        try:
            if is_of_library:
                check_is_of("standin_handing", make)
            else:
                check_is_no_librarys(make, ("standin_handing", "the standard library"))
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


# --- Generated code -----------------------------------------------------------------------------

GENERATING = """
import linecache
import tempfile

METHODS = "def run(self):\\n    return 1\\n"


class Thing:
    def __init__(self):
        space = {"__name__": __name__ + ".generated"}
        exec(compile(METHODS, FILE, "exec"), space)
        self.run = space["run"].__get__(self)


class Closing:
    def __init__(self):
        space = {"__name__": __name__}
        exec(compile("def make(thing):\\n    return lambda: thing\\n", FILE, "exec"), space)
        self.run = space["make"](self)
"""


@pytest.mark.parametrize("kind", ["Thing", "Closing"])
@pytest.mark.parametrize(
    "file", ["'<string>'", "'<generated>'", "tempfile.gettempdir() + '/xyz.py'"]
)
def test_generated_code_is_of_the_library_that_runs_it(
    kind: str, file: str, install: Callable[..., Any]
) -> None:
    module = install("standin_generating", GENERATING.replace("FILE", file))

    def make() -> None:
        thing = getattr(module, kind)()
        thing.payload = payload()

    check_is_of("standin_generating", make)


def test_code_that_a_user_generates_is_no_librarys(install: Callable[..., Any]) -> None:
    module = install("standin_patient", PATIENT)
    for space in [{}, {"__name__": "__main__"}, {"__name__": "mine"}]:

        def make(space: dict[str, Any] = space) -> None:
            names = dict(space)
            exec("def make(thing):\n    return lambda: thing\n", names)
            thing = module.Thing()
            thing.register(names["make"](thing))
            thing.payload = payload()

        check_is_no_librarys(make, ("standin_patient",))


OF_A_USER = """
class Trainer:
    def __init__(self, payload):
        self.payload = payload
        self.on_step = lambda: self.payload

class Child:
    def __init__(self, payload):
        self.payload = payload
        self.parent = Parent(self)

class Parent:
    def __init__(self, child):
        self.child = child
"""


@pytest.mark.parametrize("kind", ["Trainer", "Child"])
def test_what_a_librarys_process_runs_for_a_user_is_no_librarys(
    kind: str, tmp_path: Path, install: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of Ray's is Ray's program, and runs what a script sent as ``__main__``."""
    library = install("standin_worker", "")
    main = types.ModuleType("__main__")
    main.__file__ = library.__file__
    names = vars(main)
    exec(compile(OF_A_USER, str(tmp_path / "train.py"), "exec"), names)
    monkeypatch.setitem(sys.modules, "__main__", main)
    check_is_no_librarys(lambda: names[kind](payload()), ("standin_worker",))


# --- Data classes -------------------------------------------------------------------------------


@dataclasses.dataclass
class Mine:
    payload: object
    me: object = None


def test_a_users_data_class_is_the_users() -> None:
    def make() -> None:
        mine = Mine(payload())
        mine.me = mine

    check_is_no_librarys(make)


# --- PyTorch -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, with what it imports late, as part of the heap that no look visits."""
    module = pytest.importorskip("torch", reason="objects of PyTorch")
    module.optim.SGD(module.nn.Linear(2, 2).parameters(), lr=0.1)
    gc.collect()
    gc.freeze()
    return module


def torch_programs(torch: Any) -> dict[str, Callable[[], None]]:
    """Programs that close a cycle through PyTorch's objects by themselves."""
    nn = torch.nn

    def original_forward() -> None:
        layer = nn.Linear(64, 64)
        layer._orig = layer.forward

    def replaced_forward() -> None:
        layer = nn.Linear(64, 64)
        layer.forward = layer.forward

    def scheduler() -> None:
        layer = nn.Linear(64, 64)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        optimizer.sched = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def hooked() -> None:
        layer = nn.Linear(64, 64)
        layer.register_forward_hook(layer.forward)

    def hooked_state() -> None:
        layer = nn.Linear(64, 64)
        layer.register_state_dict_pre_hook(layer.extra_repr)

    def hooked_lambda() -> None:
        layer = nn.Linear(64, 64)
        layer.register_forward_hook(lambda *_: layer)

    def in_sequence() -> None:
        layers = nn.Sequential(nn.Linear(64, 64))
        layers[0].owner = [layers]

    def in_defaults() -> None:
        layer = nn.Linear(64, 64)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        optimizer.defaults["me"] = optimizer

    def in_groups() -> None:
        layer = nn.Linear(64, 64)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        optimizer.param_groups[0]["optimizer"] = optimizer

    def in_dataset() -> None:
        data = torch.utils.data.TensorDataset(torch.zeros(1000))
        data.loader = torch.utils.data.DataLoader(data)

    def compiled() -> None:
        layer = nn.Linear(64, 64)
        layer.call = torch.no_grad()(layer.forward)

    def deque() -> None:
        layer = nn.Linear(64, 64)
        layer.recent = collections.deque([layer])

    def bias() -> None:
        layer = nn.Linear(64, 64, bias=False)
        del layer._parameters["bias"]
        layer.bias = [layer]

    def step() -> None:
        layer = nn.Linear(64, 64)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        optimizer.step = optimizer.step

    made = locals()
    return {name: it for name, it in made.items() if isinstance(it, types.FunctionType)}


def test_what_a_user_does_to_pytorchs_objects(torch: Any) -> None:
    programs = torch_programs(torch)
    wrong = []
    for name, make in programs.items():
        make()
        try:
            check_is_no_librarys(make)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


#: What each of them sets, of which a report is to name one.
TORCH_CUTS = {
    "original_forward": [("Linear", "._orig")],
    "replaced_forward": [("Linear", ".forward")],
    "scheduler": [("SGD", ".sched")],
    "in_sequence": [("Linear", ".owner"), ("list", "[0]")],
    "in_defaults": [("dict", "['me']")],
    "in_groups": [("dict", "['optimizer']")],
    "in_dataset": [("TensorDataset", ".loader")],
    "compiled": [("Linear", ".call")],
    "deque": [("Linear", ".recent"), ("collections.deque", "[0]")],
    "bias": [("Linear", ".bias"), ("list", "[0]")],
    "step": [("SGD", ".step")],
}


def test_what_a_user_set_on_pytorchs_objects_is_cut(torch: Any) -> None:
    programs = torch_programs(torch)
    for name, wanted in TORCH_CUTS.items():
        report = found(programs[name])
        cuts = [(cut.owner, cut.edge) for leak in report.leaks for cut in leak.cuts]
        ends = [(owner.rpartition(".")[2], edge) for owner, edge in cuts]
        wanted = [(owner.rpartition(".")[2], edge) for owner, edge in wanted]
        assert [one for one in wanted if one in ends], f"{name}: {cuts}"
        assert len(cuts) == 1, f"{name}: {cuts}"


def test_what_a_user_sets_on_pytorchs_objects(torch: Any) -> None:
    layers: dict[str, Callable[[], Any]] = {
        "Linear": lambda: torch.nn.Linear(64, 64),
        "Conv2d": lambda: torch.nn.Conv2d(3, 3, 3),
        "LSTM": lambda: torch.nn.LSTM(8, 8),
        "Sequential": lambda: torch.nn.Sequential(torch.nn.Linear(64, 64)),
        "ModuleList": lambda: torch.nn.ModuleList([torch.nn.Linear(64, 64)]),
        "MultiheadAttention": lambda: torch.nn.MultiheadAttention(8, 2),
        "SGD": lambda: torch.optim.SGD(torch.nn.Linear(64, 64).parameters(), lr=0.1),
        "Adam": lambda: torch.optim.Adam(torch.nn.Linear(64, 64).parameters()),
        "TensorDataset": lambda: torch.utils.data.TensorDataset(torch.zeros(1000)),
        "Generator": lambda: torch.utils.data.DataLoader([torch.zeros(1000)]),
    }
    wrong = []
    for (name, new), way in itertools.product(layers.items(), WAYS):
        if way is hold_itself and issubclass(type(new()), torch.nn.Module):
            continue  # a module refuses to be its own child

        def make(new: Callable[[], Any] = new, way: Way = way) -> None:
            thing = new()
            way(thing)

        make()
        try:
            check_is_no_librarys(make)
        except AssertionError as error:
            wrong.append(f"{name} {way.__name__}: {error}")
    assert not wrong, "\n".join(wrong)
