"""Whose leak is it? Programs in which the user, a library or a second library closes the cycle."""

from __future__ import annotations

import dataclasses
import itertools
import random
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from support.gifts import GIFTS
from support.owners import (
    COMMON,
    KINDS,
    PATIENT,
    PLACES,
    SNIPPETS,
    WAYS,
    Way,
    check_is_no_librarys,
    check_is_of,
    found,
    hold_in_list,
    hold_lambda,
    indented,
    payload,
    source,
)

pytestmark = pytest.mark.usefixtures("collector_paused")


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


LOOPS = """
class Loop:
    def __init__(self, trainer):
        self.trainer = trainer


class Trainer:
    def __init__(self):
        self.fit_loop = Loop(self)

    def fit(self, model):
        self.model = model
        self.batch = model.payload
        model.attached = self
"""


def test_what_a_library_makes_beside_a_users_cycle_is_not_charged_to_it(
    install: Callable[..., Any],
) -> None:
    library = install("standin_loops", LOOPS)

    class Model:
        def __init__(self) -> None:
            self.payload = payload()

    def make() -> None:
        model = Model()
        model.hook = lambda: model  # type: ignore[attr-defined]
        library.Trainer().fit(model)

    by_owner = {
        leak.summary.partition(" ")[0].rpartition(".")[2]: (leak.library, leak.cuts)
        for leak in found(make).leaks
    }
    own, cuts = by_owner["hook"]
    assert own is None
    assert [cut.edge for cut in cuts] == [".hook"]
    assert {of.name for of, _ in by_owner.values() if of} == {"standin_loops"}
    assert len(by_owner) == 2, by_owner


GIVEN = """
class Trainer:
    def __init__(self, compute=None, model=None):
        self.compute = compute
        self.payload = model

    def run(self):
        return self.compute()
"""


PARTS = """
class Fit:
    def __init__(self, trainer):
        self.trainer = trainer

class Test:
    def __init__(self, trainer):
        self.trainer = trainer

class Trainer:
    def __init__(self):
        self.fit = Fit(self)
        self.test = Test(self)
        self.loops = [self.fit, self.test]
"""


@pytest.mark.parametrize("has_helper", [False, True])
def test_what_a_library_makes_for_a_users_class_is_one_leak(
    has_helper: bool, install: Callable[..., Any]
) -> None:
    library = install("looping", PARTS)

    class Helper:
        def __init__(self, boss: Any) -> None:
            self.boss = boss

    class Own(library.Trainer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.array = payload()
            if has_helper:
                self.helper = Helper(self)

    leaks = found(Own).leaks
    whose = sorted(leak.library.name if leak.library else "" for leak in leaks)
    assert whose == [""] * has_helper + ["looping"]
    for leak in leaks:
        assert ("`Helper.boss`" in leak.advice) == (leak.library is None)


def test_what_a_base_class_of_a_library_calls_stays_a_callback(install: Callable[..., Any]) -> None:
    """The attribute is the library's: a method of its name would be hidden by what it sets."""
    library = install("standin_given", GIVEN)

    class Given(library.Trainer):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__(compute=self.metrics, model=payload())

        def metrics(self) -> int:
            return 1

    class Own(library.Trainer):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__(model=payload())
            self.score = self.metrics

        def metrics(self) -> int:
            return 1

    (given,) = found(Given).leaks
    assert "`Given.compute` is `metrics`, a bound method" in given.advice
    assert "by its name" not in given.advice
    assert "WeakMethod" not in given.advice
    assert given.before is None
    (own,) = found(Own).leaks
    assert "Look the method up when it is called, by its name." in own.advice


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
