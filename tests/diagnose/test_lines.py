"""Which line a leak names as the one to change, and advice that would do harm."""

from __future__ import annotations

import enum
import functools
import gc
import re
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy
import pytest

import cyclescope
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

OWNER = """
import functools
import numpy


class Owner:
    def __init__(self):
        self.data = numpy.zeros(1024)
        self.kept = {kept}
        self.fill()

    def work(self):
        return self.data

    def fail(self):
        raise ValueError

    def fill(self):
{fill}
"""

FILLS = {
    "a lambda in a list": ("[]", "self.kept.append(lambda: self.data)  # here"),
    "a lambda by key": ("{}", "self.kept['x'] = lambda: self.data  # here"),
    "a method in a list": ("[]", "self.kept.append(self.work)  # here"),
    "a method in a set": ("set()", "self.kept.add(self.work)  # here"),
    "a function": (
        "[]",
        """\
def show():
    return self.data  # here
self.kept.append(print)
self.kept.append(show)""",
    ),
    "an exception in a list": (
        "[]",
        """\
try:
    self.fail()
except ValueError as error:
    self.kept.append(error)  # here
self.after = 1""",
    ),
    "an exception by key": (
        "{}",
        """\
try:
    self.fail()
except ValueError as error:
    self.kept['last'] = error  # here""",
    ),
}


def report_of(make: Callable[[], object]) -> cyclescope.CycleReport:
    gc.collect()
    make()
    return cyclescope.find_tensor_cycles(devices="any", frozen=False)


def leaks_of(make: Callable[[], object]) -> list[cyclescope.Leak]:
    return report_of(make).leaks


def module_of(text: str, modules: Modules) -> Any:
    return modules.load("lines_of_owner", text)


@pytest.mark.parametrize("fill", FILLS)
def test_what_puts_it_into_a_container_is_the_line(fill: str, modules: Modules) -> None:
    kept, lines = FILLS[fill]
    body = "\n".join(f"        {line}" for line in lines.splitlines())
    text = OWNER.replace("{kept}", kept).replace("{fill}", body)
    module = module_of(text, modules)
    (leak,) = leaks_of(module.Owner)
    (line,) = [n for n, line in enumerate(text.splitlines(), 1) if "# here" in line]
    assert leak.source is not None
    assert leak.source.marked == line
    assert f"lines_of_owner.py:{line}: " in " ".join(leak.to_text().split())


@pytest.mark.parametrize("count", [2, 3, 4])
def test_where_several_lines_may_have_put_it_they_or_the_class_is_named(
    count: int, modules: Modules
) -> None:
    body = "\n".join(["        self.kept.append(self.work)  # here"] * count)
    text = OWNER.replace("{kept}", "[]").replace("{fill}", body)
    module = module_of(text, modules)
    report = report_of(module.Owner)
    (leak,) = report.leaks
    lines = [n for n, line in enumerate(text.splitlines(), 1) if "# here" in line]
    said = " ".join(leak.to_text().split()).split(" Fix: ")[1]
    places = [f"{module.__file__}:{line}" for line in lines]
    assert leak.source is None
    if count < 4:
        assert leak.cuts[0].candidates == places
        shown = [f"{it.file}:{it.marked}" for it in leak.candidate_sources]
        assert shown == places
        numbers = re.findall(r"(\d+) │ +self\.kept\.append", str(report))
        assert numbers == list(map(str, lines))
        assert f"Remove `work` ({count} times) from it, when they are no longer needed." in said
        assert re.findall(r"owner\.py:(\d+)(?:,| or|:) ", said) == [str(line) for line in lines]
    else:
        assert leak.cuts[0].candidates == []
        assert leak.candidate_sources == []
        assert ", in class `Owner`: " in said


PUT_BY_ANOTHER = """\
import logging
import numpy


class Tree:
    def __init__(self):
        self.array = numpy.zeros(1024)
        self.kids = []


class Leaf(logging.Handler):
    def __init__(self, it):
        super().__init__()
        {put}


def make():
    {make}
"""
PUTS = {
    "another class": ("self.it = it; it.kids.append(self)  # here", "Leaf(Tree())"),
    "a key": ("self.it = it; it.kids = {}; it.kids[self] = 1  # here", "Leaf(Tree())"),
    "a base class of a library": ("self.owner = it  # here", "t = Tree(); t.kids.append(Leaf(t))"),
}


@pytest.mark.parametrize("case", PUTS)
def test_the_line_that_puts_it_there_need_not_be_of_its_class(case: str, modules: Modules) -> None:
    put, make = PUTS[case]
    text = PUT_BY_ANOTHER.replace("{put}", put).replace("{make}", make)
    (leak,) = leaks_of(module_of(text, modules).make)
    (line,) = [n for n, line in enumerate(text.splitlines(), 1) if "# here" in line]
    said = " ".join(leak.to_text().split()).split(" Fix: ")[1]
    assert re.match(rf"\S+owner\.py:{line}: ", said), said


OWN_ITEM = """\
import numpy


class Table(dict):
    def __init__(self):
        self.data = numpy.zeros(1024)
        self["get"] = self.look  # here

    def look(self):
        return self.data
"""


def test_an_object_that_is_a_container_keeps_its_own_method(modules: Modules) -> None:
    (leak,) = leaks_of(module_of(OWN_ITEM, modules).Table)
    assert leak.source is not None
    assert leak.source.lines[leak.source.marked - leak.source.line].endswith("# here")
    assert "the bound method `look`, which leads back to it" in leak.advice


class Job:
    """An object whose method a library calls back."""

    def __init__(self) -> None:
        self.data = numpy.zeros(1024)
        self.future: Future[int] = Future()
        self.future.add_done_callback(self.done)

    def done(self, future: Future[int]) -> None:
        pass


def test_a_librarys_callback_is_not_to_be_a_weak_method() -> None:
    """A future would call it with itself as the argument, which a `WeakMethod` does not take."""
    (leak,) = leaks_of(Job)
    assert "WeakMethod" not in leak.advice
    assert "does not need the Job" in leak.advice


class cached:
    """A descriptor that keeps the objects that it was asked for."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self.function = function
        self.values: dict[int, tuple[object, object]] = {}

    def __get__(self, instance: object, owner: type | None = None) -> object:
        return self.values.setdefault(id(instance), (instance, self.function(instance)))[1]


def test_a_class_that_leads_to_its_instance_is_not_to_be_made_once() -> None:
    """That would keep the instance until the program ends."""

    def make() -> None:
        class Model:
            def __init__(self) -> None:
                self.data = numpy.zeros(1024)

            @cached
            def norm(self) -> object:
                return self.data.sum()

        assert Model().norm == 0

    (leak,) = leaks_of(make)
    assert "module level" not in leak.advice
    assert "`cached.values`" in leak.advice
    assert [cut.edge for cut in leak.cuts] == [".values"]


def test_a_class_is_called_by_its_name() -> None:
    def make() -> None:
        functional: Any = enum.Enum
        made = functional("Made", {"A": 1})
        made.data = numpy.zeros(1024)

    (leak,) = leaks_of(make)
    assert "of the class `Made`" in leak.advice


def test_both_leaks_are_referred_to_by_number() -> None:
    class Owner:
        def __init__(self) -> None:
            self.data = numpy.zeros(1024)
            self.first = lambda: self.data
            self.second = functools.partial(print, self)

    gc.collect()
    Owner()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    text = " ".join(str(report).split())
    for number, leak in enumerate(report.leaks, 1):
        assert f"Also: leak {number} ({leak.signature}) holds some of this memory" in text
    assert len(report.leaks) == 2
    # A warning is of one leak, and has no numbers.
    assert "Also: leak 1 (" not in report.leaks[1].to_text()


HOOKS = """
import torch


def add(layer, hook):
    layer.register_forward_hook(hook)


class Probe:
    def __init__(self, layer):
        self.layer = layer
        {register}

    def save(self, *_):
        pass
"""


@pytest.mark.parametrize(
    ("register", "is_named"),
    [
        ("layer.register_forward_hook(self.save)", True),
        ("layer.register_backward_hook(self.save)", True),
        ("layer.register_forward_hook(self.save), str(self.save)", False),
        ("add(layer, self.save)", False),
        ("layer.register_forward_hook(hook=self.save)", True),
        ("layer.register_forward_hook(getattr(self, 'save'))", False),
    ],
)
def test_the_call_that_registers_a_method_is_the_line(
    register: str, *, is_named: bool, modules: Modules
) -> None:
    torch = pytest.importorskip("torch", reason="hooks of PyTorch")
    text = HOOKS.replace("{register}", register)
    module = module_of(text, modules)
    (leak,) = leaks_of(lambda: module.Probe(torch.nn.Linear(64, 64)))
    assert (leak.source is not None) is is_named
    begin = f"        {register}" if is_named else "    def save"
    line = text[: text.index(begin)].count("\n") + 1
    assert f"lines_of_owner.py:{line}: " in " ".join(leak.to_text().split())


AROUND = """
import numpy


class Owner:
    def work(self):
        return self.data

    def __init__(self):
        self.size = 1024

        self.data = numpy.zeros(self.size)
        self.kept = [print]
        self.kept.append(self.work)  # here
        self.size = 0

    def after(self):
        pass
"""


def test_lines_of_the_same_function_are_shown_around(modules: Modules) -> None:
    (leak,) = leaks_of(module_of(AROUND, modules).Owner)
    shown = leak.source
    assert shown is not None
    assert leak.patch is None
    lines = AROUND.splitlines()
    assert "# here" in lines[shown.marked - 1]
    assert shown.lines == lines[shown.marked - 3 : shown.marked + 1]
    assert shown.line == shown.marked - 2


RAISES = """
import numpy
import pytest


def fail():
    raise ValueError


def make():
    array = numpy.zeros(1024)
    with pytest.raises(ValueError) as info:  # here
        fail()
    assert info.value
    assert array.size
"""


def test_the_with_that_keeps_an_exception_is_the_line(modules: Modules) -> None:
    """Though it occurs in a library, it is the program's variable."""
    (leak,) = leaks_of(module_of(RAISES, modules).make)
    (line,) = [n for n, line in enumerate(RAISES.splitlines(), 1) if "# here" in line]
    assert f"lines_of_owner.py:{line}: " in " ".join(leak.to_text().split())
    assert leak.patch is not None
    assert leak.patch.line == line


KEPT = """
import numpy


class Kept:
    def __init__(self):
        self.data = numpy.zeros(1024)
        self.me = self
"""


def test_no_line_is_named_once_another_file_may_have_made_it(modules: Modules) -> None:
    """A notebook reloads modules: what was read of them before does not count."""
    kept = modules.load("lines_of_kept", KEPT)
    other = modules.load("lines_of_other", "import lines_of_kept\n")
    for _ in range(2):
        (leak,) = leaks_of(kept.Kept)
        assert leak.source is not None
    Path(other.__file__).write_text("import lines_of_kept\n\n\ndef tie(it):\n    it.me = it\n")
    (leak,) = leaks_of(kept.Kept)
    assert leak.source is None


SHARED = """\
import numpy


class Shared:
    def meet(self, other):
        self.other = other

    def leave(self, other):
        self.other = other

    def part(self, other):
        self.other = other

    def join(self, other):
        self.other = other


def make():
    owner, other = Shared(), Shared()
    owner.array = numpy.zeros(1024)
    owner.meet(other)
    other.meet(owner)
"""


def test_the_class_is_named_where_the_line_is_not_known(modules: Modules) -> None:
    (leak,) = leaks_of(module_of(SHARED, modules).make)
    assert "lines_of_owner.py:5, in class `Shared`: " in " ".join(leak.to_text().split())


def test_the_class_of_code_that_is_in_no_module_is_named(tmp_path: Path) -> None:
    file = tmp_path / "shared_class.py"
    file.write_text(SHARED)
    space: dict[str, Any] = {"__name__": "shared_class"}
    exec(compile(SHARED, str(file), "exec"), space)
    (leak,) = leaks_of(space["make"])
    assert "shared_class.py:5, in class `Shared`: " in " ".join(leak.to_text().split())


ANY_NAME = """\
import argparse
import collections
import dataclasses
import numpy


class Stored:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __set__(self, owner, value):
        owner.__dict__[self.name] = value


class Bag(argparse.Namespace):
    data = Stored()


def made():
    @dataclasses.dataclass
    class Node:
        data: object
        parent: object = None
        children: list = dataclasses.field(default_factory=list)

    first = Node(numpy.zeros(1024))
    first.children.append(Node(None, first))


def given():
    bag = Bag()
    bag.other = Bag(owner=bag)
    bag.array = numpy.zeros(1024)
"""


@pytest.mark.parametrize("name", ["made", "given"])
def test_code_that_stores_any_attribute_of_any_object_is_not_named(
    name: str, modules: Modules
) -> None:
    module = module_of(ANY_NAME, modules)
    (leak,) = leaks_of(getattr(module, name))
    line = ANY_NAME[: ANY_NAME.index("owner.__dict__")].count("\n") + 1
    assert f"lines_of_owner.py:{line}" not in " ".join(leak.to_text().split())


def test_where_a_library_object_that_takes_a_method_is_made_is_the_line(modules: Modules) -> None:
    text = """
import re
import numpy


class Template:
    def __init__(self):
        self.data = numpy.zeros(1024)
        self.scanner = re.Scanner([(r"\\d+", self.number)])  # here

    def number(self, scanner, token):
        return self.data[int(token)]
"""
    (leak,) = leaks_of(module_of(text, modules).Template)
    (line,) = [n for n, line in enumerate(text.splitlines(), 1) if "# here" in line]
    assert leak.source is not None
    assert leak.source.marked == line


DECORATED = """
import numpy


def traced(function):
    return lambda factor: function(factor)


class Net:
    def __init__(self):
        self.weight = numpy.zeros(1024)

        @traced
        def scale(factor):
            return self.weight * factor

        self.scale = scale  # here
"""


def test_what_a_decorator_made_of_a_function_is_stored_where_its_name_is(modules: Modules) -> None:
    (leak,) = leaks_of(module_of(DECORATED, modules).Net)
    line = DECORATED[: DECORATED.index("self.scale = scale")].count("\n") + 1
    assert leak.source is not None
    assert leak.source.marked == line
