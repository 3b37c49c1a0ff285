"""The place that a leak is said to be at: the line that stored the reference, or none."""

from __future__ import annotations

import gc
import re
import tracemalloc
from typing import Any

import pytest

import cyclescope
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

HEADER = """
import functools
import types
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any
import numpy


def array():
    return numpy.zeros(5000)

"""


def module_of(text: str, modules: Modules, name: str = "places_told") -> Any:
    return modules.load(name, HEADER + text)


def told(module: Any) -> list[str]:
    gc.collect()
    module.go()
    leaks = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    return [" ".join(leak.to_text().split()) for leak in leaks]


def lines_of(text: str, mark: str) -> list[int]:
    return [n for n, it in enumerate((HEADER + text).splitlines(), 1) if mark in it]


def line_of(text: str, mark: str = "# here") -> int:
    (line,) = lines_of(text, mark)
    return line


STORED = {
    "a base class": """
class World:
    def __init__(self):
        self.array, self.agents = array(), []

class Agent:
    def __init__(self, world):
        self.world = world  # here

class Plain(Agent):
    pass

def go():
    world = World()
    world.agents.append(Plain(world))
""",
    "a tuple": """
class Doc:
    def __init__(self, up=None):
        self.up, self.kids, self.array = up, [], array()  # here
        if up:
            up.kids.append(self)

def go():
    Doc(Doc())
""",
    "another class": """
class Layer:
    def __init__(self):
        self.parent = None
        self.array = array()

    def reset(self):
        self.parent = None

    def rename(self, other):
        self.parent = other.parent

class Net:
    def __init__(self):
        self.layers = {}

    def add(self, name, layer):
        self.layers[name] = layer
        layer.parent = self  # here
        return self

def go():
    Net().add("a", Layer())
""",
    "a function": """
class Tree:
    def __init__(self):
        self.array, self.kids = array(), []

class Leaf:
    pass

def go():
    tree, leaf = Tree(), Leaf()
    leaf.tree = tree  # here
    tree.kids.append(leaf)
""",
    "a decorator": """
def timed(fn):
    @functools.wraps(fn)
    def inner(*args):
        return fn(*args)
    return inner

class Op:
    def __init__(self):
        self.array = array()
        self.compute = timed(timed(self.compute))  # here

    def compute(self):
        return self.array.sum()

def go():
    Op()
""",
    "a loop of setattr": """
class Model:
    def __init__(self):
        self.array = array()

    def loss(self):
        return self.array.sum()

def wrap(fn):
    def wrapped(*args):
        return fn(*args)
    return wrapped

def go():
    model = Model()
    for name in ("loss",):
        setattr(model, name, wrap(getattr(model, name)))  # here
    setattr(model, "other", 1)
""",
    "a method type": """
class Adam:
    def __init__(self):
        self.array = array()

    def step(self):
        return self.array

def go():
    adam = Adam()
    original = adam.step
    def step(self):
        return original()
    adam.step = types.MethodType(step, adam)  # here
""",
    "an update of the dict": """
class Tree:
    def __init__(self):
        self.array, self.kids = array(), []

class Leaf:
    def show(self):
        return self.tree

def go():
    tree, leaf = Tree(), Leaf()
    leaf.__dict__.update(tree=tree)  # here
    tree.kids.append(leaf)
""",
    "what is added to a list": """
class Button:
    def __init__(self):
        self.array, self.pressed = array(), []
        self.pressed += [self.press]  # here

    def press(self):
        return self.array

def go():
    Button()
""",
    "a cached property": """
class Tree:
    def __init__(self):
        self.array = array()

    @functools.cached_property
    def root(self):  # here
        return self

def go():
    Tree().root
""",
    "an item of a named tuple's list": """
Context = namedtuple("Context", "data told_later")

def go():
    context = Context(array(), [])
    context.told_later.append(("save", context))  # here
""",
}


@pytest.mark.parametrize("case", STORED)
def test_the_line_that_stores_it_is_the_place(case: str, modules: Modules) -> None:
    text = STORED[case]
    (leak,) = told(module_of(text, modules))
    assert f"places_told.py:{line_of(text)}: " in leak, leak
    assert "in class" not in leak
    assert "tracemalloc" not in leak


FIELD = """
@dataclass(eq=False)
class Clip:
    data: Any
    reel: Any = None  # one

@dataclass(eq=False)
class Reel:
    clips: list = field(default_factory=list)

def other():
    return Clip(array(), Reel())

def go():
    reel, clip = Reel(), Clip(array())
    clip.reel = reel  # one
    reel.clips.append(clip)
"""


def test_where_a_call_or_an_assignment_may_have_it_are_both(modules: Modules) -> None:
    (leak,) = told(module_of(FIELD, modules))
    first, second = lines_of(FIELD, "# one")
    assert re.search(rf"\S+places_told\.py:{first} or \S+places_told\.py:{second}: ", leak), leak


SEVERAL = {
    "a base class that is given the method": """
class Base:
    def __init__(self, tree):
        self.tree = tree  # one

class Leaf(Base):
    def __init__(self):
        super().__init__(self.run)
        self.array = array()

    def reset(self):
        self.tree = self.run  # one

    def run(self):
        return self.array

def go():
    Leaf()
""",
    "a starred target": """
class Tree:
    def __init__(self):
        self.array, self.kids = array(), []

class Leaf:
    def grow(self, tree):
        self.name, *self.tree = "leaf", tree  # one

    def never(self, tree):
        self.tree = [tree]  # one

def go():
    tree, leaf = Tree(), Leaf()
    leaf.grow(tree)
    tree.kids.append(leaf)
""",
    "its dict": """
class Tree:
    def __init__(self):
        self.array, self.kids = array(), []

class Leaf:
    def grow(self, **named):
        self.__dict__ = dict(named)  # one

    def never(self, tree):
        self.tree = tree  # one

def go():
    tree, leaf = Tree(), Leaf()
    leaf.grow(tree=tree)
    tree.kids.append(leaf)
""",
    "a parameter of another type": """
class Tree:
    def __init__(self):
        self.array, self.kids = array(), []

class HasTree:
    tree: object

class Leaf:
    def never(self, tree):
        self.tree = tree  # one

def grow(leaf: HasTree, tree):
    leaf.tree = tree  # one

def go():
    tree, leaf = Tree(), Leaf()
    grow(leaf, tree)
    tree.kids.append(leaf)
""",
    "another name of its dict": """
class Tree:
    def __init__(self):
        self.array, self.kids = array(), []

class Leaf:
    def grow(self, tree):
        names = vars(self)
        names["tree"] = tree  # one

    def never(self, tree):
        self.tree = tree  # one

def go():
    tree, leaf = Tree(), Leaf()
    leaf.grow(tree)
    tree.kids.append(leaf)
""",
    "two functions": """
class Tree:
    def __init__(self):
        self.array, self.kids = array(), []

    def grow(self, leaf):
        leaf.tree = self  # one
        self.kids.append(leaf)

class Leaf:
    def __init__(self):
        self.tree = None

def never(leaf, tree):
    leaf.tree = tree  # one

def go():
    Tree().grow(Leaf())
""",
}


@pytest.mark.parametrize("case", SEVERAL)
def test_where_several_lines_may_have_all_are_said(case: str, modules: Modules) -> None:
    (leak,) = told(module_of(SEVERAL[case], modules))
    first, second = lines_of(SEVERAL[case], "# one")
    said = leak.split(" Fix: ")[1]
    assert re.match(rf"\S+told\.py:{first} or \S+told\.py:{second}: `Leaf\.tree` ", said), leak


BASE = """
class Agent:
    def show(self):  # here
        return self.world

    def enter(self, world):
        self.world = world

    def move(self, world):
        self.world = world

    def swim(self, world):
        self.world = world

    def walk(self, world):
        self.world = world

class Plain(Agent):
    pass

class World:
    def __init__(self):
        self.array, self.agents = array(), []

def go():
    world, agent = World(), Plain()
    agent.enter(world)
    world.agents.append(agent)
"""


def test_the_base_class_that_stores_it_is_named(modules: Modules) -> None:
    (leak,) = told(module_of(BASE, modules))
    assert f"places_told.py:{line_of(BASE)}, in class `Agent`: " in leak, leak


ELSEWHERE = """
import places_told

def go():
    tree, leaf = places_told.Tree(), places_told.Leaf()
    leaf.tree = tree
    tree.kids.append(leaf)
"""
DECOY = """
class Tree:
    def __init__(self):
        self.array, self.kids = array(), []

class Leaf:
    def __init__(self):
        self.tree = None

class Fir:
    def grow(self, leaf):
        leaf.tree = self
"""


@pytest.mark.parametrize("decoy", [False, True])
def test_another_module_of_the_program_may_have_stored_it(decoy: bool, modules: Modules) -> None:
    text = DECOY + "\ndef plant(leaf, it):\n    leaf.tree = it\n" * decoy
    module_of(text, modules)
    main = module_of(ELSEWHERE, modules, "places_of_main")
    (leak,) = told(main)
    said = rf"Fix: \S+_main\.py:{line_of(ELSEWHERE, 'leaf.tree = tree')}"
    if decoy:
        said += rf" or \S+_told\.py:{line_of(text, '= it')}"
    assert re.search(f"{said}: ", leak), leak


EXCEPTION = """
def load(again):
    data = array()
    value, first = 0, None
    other = last = None
    try:
        raise KeyError("a")
    except KeyError as e:
        value, first = 1, e  # here
    if again:
        raise first
    return data.sum() + value

def go():
    try:
        load(True)
    except KeyError:
        pass
    load(False)
"""


def test_a_variable_that_keeps_an_exception_is_one_leak(modules: Modules) -> None:
    (leak,) = told(module_of(EXCEPTION, modules))
    assert f"places_told.py:{line_of(EXCEPTION)}: The local variable `first`" in leak, leak


def test_a_wrapper_is_not_said_to_be_where_another_function_is(modules: Modules) -> None:
    text = STORED["a decorator"].replace("timed(timed(self.compute))", "timed(self.compute)")
    (leak,) = told(module_of(text, modules))
    assert "`Op.compute` is a wrapper of `compute`, whose closure variable `fn`" in leak, leak


NAMELESS = """
def go():
    items = {"array": array()}
    items["all"] = [items]
"""


@pytest.mark.parametrize("traced", [False, True])
def test_nobody_who_traces_is_told_to_trace(traced: bool, modules: Modules) -> None:
    module = module_of(NAMELESS, modules)
    if traced:
        tracemalloc.start(4)
    try:
        (leak,) = told(module)
    finally:
        tracemalloc.stop()
    assert ("Run with `python -X tracemalloc" in leak) != traced, leak
    if traced:
        assert re.search(r"allocated at .*places_told\.py:", leak), leak


WRAPPED_IN_A_LOOP = """
class Model:
    def __init__(self):
        self.array = array()

    def forward(self):
        return self.array

    def loss(self):
        return self.array.sum()

def wrap(fn):
    def wrapped(*args):
        return fn(*args)
    return wrapped

def go():
    model = Model()
    for name in ("forward", "loss"):
        setattr(model, name, wrap(getattr(model, name)))  # here
"""


def test_methods_that_one_line_wraps_get_the_same_advice(modules: Modules) -> None:
    leaks = told(module_of(WRAPPED_IN_A_LOOP, modules))
    line = line_of(WRAPPED_IN_A_LOOP)
    assert len(leaks) == 2
    for name in ("forward", "loss"):
        (leak,) = [leak for leak in leaks if f":{line}: `Model.{name}` is the function" in leak]
        assert f"Remove `Model.{name}` when it is no longer needed." in leak


TWICE = """
from torch import nn

def go():
    model = nn.Sequential(nn.Linear(64, 64), nn.Sequential(nn.Linear(64, 64)))
    for module in model.modules():
        for child in module.children():
            child.parent = [module]
"""


def test_the_same_removal_is_said_once(modules: Modules) -> None:
    pytest.importorskip("torch")
    leaks = told(module_of(TWICE, modules))
    removal = "remove the item at `[0]` from the list `linear.parent`"
    assert [leak.lower().count(removal) for leak in leaks if "list `Linear.parent`" in leak] == [1]


FAILURE = """
class Failure(Exception):
    def __init__(self):
        self.array = array()
        self.brief = lambda: tuple(self.array.shape)

    def show(self):
        return self.brief()

def go():
    Failure().show()
"""


def test_the_advice_says_what_the_patch_does(modules: Modules) -> None:
    module = module_of(FAILURE, modules)
    gc.collect()
    module.go()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert (leak.patch is None) or ("weakref.ref(self)" in leak.advice), leak.advice
    assert "weakref.ref(self)" in leak.advice


NOT_WEAKLY = """
Base = tuple

class Box(Base):
    def __init__(self):
        self.array = array()
        self.size = lambda: len(self.array)

    def show(self):
        return self.size()

def go():
    Box().show()
"""


def test_no_patch_refers_weakly_to_what_takes_no_weak_reference(modules: Modules) -> None:
    module = module_of(NOT_WEAKLY, modules)
    gc.collect()
    module.go()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert "weak" not in leak.advice
    assert leak.patch is None
