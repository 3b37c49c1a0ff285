"""Lines that look as if they had stored a reference, beside the one that has."""

from __future__ import annotations

import asyncio
import gc
import re
from typing import Any
from unittest import mock

import numpy
import pytest

import cyclescope
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

HEADER = """
from dataclasses import dataclass, field, replace
from typing import Any
import numpy

"""

DESCRIPTOR = """
class Stored:
    def __set_name__(self, owner, name):
        self.name = name

    def __set__(self, owner, value):
        owner.__dict__[self.name] = value{mark}

class Narrower(Stored):
    pass

{other}
class Model:
    {attribute}

    def __init__(self, parts):
        self.parts, self.data = parts, numpy.zeros(5000)  # here

def go():
    parts = []
    parts.append(Model(parts))
"""


def described(attribute: str = "pass", other: str = "", is_its: bool = True) -> str:
    """A program with a descriptor, which may be one of the class whose object leaks."""
    mark = "  # here" if is_its else ""
    return DESCRIPTOR.format(attribute=attribute, other=other, mark=mark)


PROGRAMS = {
    "a field that __init__ does not take": """
@dataclass(eq=False)
class Phase:
    data: Any
    run: Any = field(init=False, default=None)

class Run:
    def go(self):
        self.phase = Phase(numpy.zeros(5000))
        self.phase.run = self  # here

def go():
    Run().go()
""",
    "a field that no call gives": """
@dataclass(eq=False)
class Phase:
    data: Any
    run: Any = None

class Run:
    def go(self):
        self.phase = Phase(numpy.zeros(5000))
        self.phase.run = self  # here

def go():
    Run().go()
""",
    "what a call of the standard library's namespace gives": """
from types import SimpleNamespace

class Run:
    def go(self):
        self.data = numpy.zeros(5000)
        self.phase = SimpleNamespace(number=1, run=self)  # here
        self.other = SimpleNamespace(run=None)

def go():
    Run().go()
""",
    "what a namespace of the program has": """
class Namespace:
    def __init__(self, run):
        self.run = run  # here

class Run:
    def go(self):
        self.data = numpy.zeros(5000)
        self.phase = Namespace(run=self)

def go():
    Run().go()
""",
    "an attribute that a namespace has too": """
from types import SimpleNamespace

class Part:
    pass

class Run:
    def go(self):
        self.data = numpy.zeros(5000)
        self.phase = Part()
        self.phase.run = self  # here
        self.other = SimpleNamespace(run=self.data)

def go():
    Run().go()
""",
    "a field that a call gives": """
@dataclass(eq=False)
class Phase:
    data: Any
    run: Any = None  # here

class Run:
    def go(self):
        self.phase = Phase(numpy.zeros(5000), self)

def later(phase, run):
    phase.run = run  # here

def go():
    Run().go()
""",
    "a field that a call gives by its name": """
@dataclass(eq=False)
class Phase:
    data: Any
    run: Any = None  # here

class Run:
    def go(self):
        self.phase = replace(Phase(numpy.zeros(5000)), run=self)

def later(phase, run):
    phase.run = run  # here

def go():
    Run().go()
""",
    "a copy of what another object has": """
class Node:
    def __init__(self):
        self.parent, self.data = None, numpy.zeros(5000)

    def beside(self):
        other = Node()
        other.parent = self.parent  # here
        other.parent.nodes.append(other)

class Tree:
    def __init__(self):
        self.nodes = []

def go():
    tree, node = Tree(), Node()
    node.parent = tree  # here
    node.beside()
""",
    "a private attribute": """
class Box:
    def __init__(self, model):
        self.__model = model  # here

class Other:
    def __init__(self, model):
        self.__model = model

class Model:
    def __init__(self):
        self.data, self.box = numpy.zeros(5000), Box(self)

def go():
    Model()
""",
    "a private attribute of a base class": """
class _Base:
    def __init__(self, model):
        self.__model = model  # here

class Box(_Base):
    pass

class Model:
    def __init__(self):
        self.data, self.box = numpy.zeros(5000), Box(self)

def go():
    Model()
""",
    "a descriptor of another class": described(
        other="class Settings:\n    rate = Narrower()\n", is_its=False
    ),
    "a descriptor of its own class": described("parts = Narrower()"),
    "a descriptor that a function makes": described(
        "parts = stored()", "def stored():\n    return Stored()\n"
    ),
    "a descriptor by another name": described("parts = Other()", "Other = Stored\n"),
    "a field with a factory": """
@dataclass(eq=False)
class Phase:
    data: Any
    runs: list = field(default_factory=list)  # here

def later(phase):
    phase.runs = [phase]  # here

def go():
    phase = Phase(numpy.zeros(5000))
    phase.runs.append(phase)
""",
    "another key": """
class View:
    def __init__(self):
        self.cache = {}

    def fill(self):
        self.cache["me"] = self  # here
        self.cache["data"] = numpy.zeros(5000)
        self.cache["shape"] = (5000,)

def go():
    View().fill()
""",
    "another function": """
class Trainer:
    def __init__(self):
        self.hooks, self.data = [], numpy.zeros(5000)

    def set_up(self):
        self.hooks.append(print)
        self.hooks.append(self.before)  # here
        self.hooks.insert(0, len)

    def before(self):
        pass

def go():
    Trainer().set_up()
""",
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_the_lines_that_may_have_stored_it_are_named(case: str, modules: Modules) -> None:
    text = HEADER + PROGRAMS[case]
    gc.collect()
    modules.load("stored_elsewhere", text).go()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    said = " ".join(leak.to_text().split()).split(" Fix: ")[1].split("`")[0]
    lines = [n for n, line in enumerate(text.splitlines(), 1) if "# here" in line]
    assert [int(n) for n in re.findall(r"stored_elsewhere\.py:(\d+)", said)] == lines, said


FIELDS = """
class Stored:
    def __set_name__(self, owner, name):
        self.name = name

    def __set__(self, owner, value):
        owner.__dict__[self.name] = value  # here

# Only files with the name of the attribute are searched.
parts = None
"""
FROM_ELSEWHERE = {
    "of the module": ("import fields_stored", "fields_stored.Stored()"),
    "by its name": ("from fields_stored import Stored", "Stored()"),
    "by another name": ("from fields_stored import Stored as Kept", "Kept()"),
}


@pytest.mark.parametrize("case", FROM_ELSEWHERE)
def test_a_descriptor_may_be_of_another_file(case: str, modules: Modules) -> None:
    imported, made = FROM_ELSEWHERE[case]
    text = f"import numpy\n{imported}\n" + DESCRIPTOR[DESCRIPTOR.index("class Model") :].format(
        attribute=f"parts = {made}"
    )
    gc.collect()
    modules.load("fields_stored", FIELDS)
    modules.load("stored_elsewhere", text).go()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    said = " ".join(leak.to_text().split()).split(" Fix: ")[1].split("`")[0]
    assert "fields_stored.py:7 or " in said, said


CLIP = """
from dataclasses import dataclass
from typing import Any
import numpy

@dataclass(eq=False)
class Clip:
    data: Any
    reel: Any = None  # here

class Reel:
    def __init__(self):
        self.clips = []

def later(clip, it):
    clip.reel = it  # here
"""
CALLER = """
import numpy
import clips_declared

def go():
    it = clips_declared.Reel()
    it.clips.append(clips_declared.Clip(numpy.zeros(5000), it))
"""


def test_a_field_may_be_given_in_another_file(modules: Modules) -> None:
    gc.collect()
    modules.load("clips_declared", CLIP)
    modules.load("clips_made", CALLER).go()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    said = " ".join(leak.to_text().split()).split(" Fix: ")[1].split("`")[0]
    lines = [n for n, line in enumerate(CLIP.splitlines(), 1) if "# here" in line]
    found = re.findall(r"clips_declared\.py:(\d+)", said)
    assert [int(n) for n in found] == lines, said


class Session:
    def __init__(self) -> None:
        self.data = numpy.zeros(5000)
        self.started = asyncio.Event()

    async def serve(self) -> None:
        await self.started.wait()


def test_what_asyncio_shows_of_a_task_is_not_to_be_set() -> None:
    async def main() -> None:
        session: Any = Session()
        session.task = asyncio.create_task(session.serve())
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert "Set `Task" not in leak.advice
    assert "set `Task" not in leak.advice
    assert "`cancel()` the Task" in leak.advice


class Told:
    def __init__(self) -> None:
        self.data = numpy.zeros(5000)

    def told(self, future: Any) -> None:
        pass


def test_the_callback_of_a_future_has_a_name() -> None:
    async def main() -> None:
        owner: Any = Told()
        owner.future = asyncio.get_running_loop().create_future()
        owner.future.add_done_callback(owner.told)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert "internal reference" not in leak.to_text()
    assert "`Future._callbacks[0]` is `told`" in leak.advice
    assert "`remove_done_callback()` of the Future" in leak.advice
    assert leak.source is not None
    assert "add_done_callback" in leak.source.lines[leak.source.marked - leak.source.line]


class Watched:
    def __init__(self) -> None:
        self.data = numpy.zeros(5000)
        self.log = mock.Mock()

    def step(self) -> None:
        self.log(self)


def test_a_mock_that_was_given_its_owner_is_reset() -> None:
    Watched().step()
    leaks = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leaks
    for leak in leaks:
        assert "`reset_mock()` on the Mock" in leak.advice
        assert "to None" not in leak.advice
        assert "weak" not in leak.advice
    watched = Watched()
    watched.step()
    watched.log.reset_mock()
    del watched
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks == []


class Locked:
    """Attributes are set once."""

    def __init__(self) -> None:
        object.__setattr__(self, "engine", Engine(self))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


class Engine:
    def __init__(self, settings: Locked) -> None:
        self.data = numpy.zeros(5000)
        object.__setattr__(settings, "engine", self)
        self.kept = [settings]


def test_an_assignment_that_the_class_decides_on_is_not_advised() -> None:
    Locked()
    leaks = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leaks
    for leak in leaks:
        assert "et `Locked.engine` to None" not in leak.advice
