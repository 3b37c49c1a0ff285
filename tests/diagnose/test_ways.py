"""What has made an object is read from code; the reference back is cut, whatever its name."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import os
import types
import weakref
from pathlib import Path
from typing import Any

import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("collector_paused")

CHILDREN = {
    "parameter": """
class Child:
    def __init__(self, boss):
        self.boss = boss
        self.fill()
""",
    "keyword and more": """
class Child:
    def __init__(self, number=0, *, boss=None):
        self.number, self.boss = number, boss
        self.fill()
""",
    "inherited": """
class Base:
    def __init__(self, boss):
        self.boss = boss

class Child(Base):
    def __init__(self, boss):
        super().__init__(boss)
        self.fill()
""",
    "dataclass": """
@dataclasses.dataclass(eq=False)
class Child:
    boss: object

    def __post_init__(self):
        self.fill()
""",
    "slots": """
class Child:
    __slots__ = ("array", "boss", "__weakref__")

    def __init__(self, boss):
        self.boss = boss
        self.fill()
""",
    "a dict": """
class Child(dict):
    def __init__(self, boss):
        super().__init__()
        self.boss = boss
        self.fill()
""",
    "a list": """
class Child(list):
    def __init__(self, boss):
        super().__init__()
        self.boss = boss
        self.fill()
""",
    "an exception": """
class Child(Exception):
    def __init__(self, boss):
        super().__init__()
        self.boss = boss
        self.fill()

    __new__ = lambda cls, *_: Exception.__new__(cls)
""",
    "another method": """
class Child:
    def __init__(self, boss=None):
        self.fill()

    def attach(self, boss):
        self.boss = boss
        return self
""",
}
MAKES = {
    "attribute": "self.kid = Child({self})",
    "misleading name": "self.root = self.kid = Child({self})",
    "list": "self.kids = [Child({self}) for _ in range(2)]",
    "appended": "self.kids = []\n        self.kids.append(Child({self}))",
    "dict": "self.kids = {{'a': Child({self}), 'b': Child({self})}}",
    "local": "kid = Child({self})\n        self.kid = kid",
}
OUTSIDE = {
    "set by its name": """
class Child:
    def __init__(self):
        self.fill()

class Maker:
    def __init__(self):
        self.kid = Child()
        setattr(self.kid, "boss", self)
        self.fill()
""",
    "passed on": """
class Child:
    def __init__(self, boss):
        self.boss = boss
        self.fill()

class Between:
    def __init__(self, boss):
        self.part = Child(boss)

class Maker:
    def __init__(self):
        self.between = Between(self)
        self.kid = self.between.part
        self.fill()
""",
    "a class that is given": """
class Child:
    def __init__(self, boss):
        self.boss = boss
        self.fill()

class Maker:
    def __init__(self, of=Child):
        self.engine = of(self)
        self.kid = self.engine
        self.fill()
""",
    "set by the maker": """
class Child:
    def __init__(self):
        self.fill()

class Maker:
    def __init__(self):
        self.kid = Child()
        self.kid.boss = self
        self.fill()
""",
}
HOLDS = ["Child", "Maker", "both"]
HEAD = "import dataclasses\nimport numpy\n"
FILL = """
def fill(self):
    self.array = numpy.zeros(5000)

def leave(self):
    pass

Child.fill = fill if {child} else leave
Maker.fill = fill if {maker} else leave
"""


def program(child: str, make: str) -> str:
    passed = "boss=self" if child == "keyword and more" else "self"
    made = MAKES[make].format(self=passed)
    if child == "another method":
        made = made.replace("Child(self)", "Child().attach(self)")
    return f"""{CHILDREN[child]}
class Maker:
    def __init__(self):
        {made}
        self.fill()
"""


PROGRAMS = {
    f"{child}, {make}": program(child, make) for child, make in itertools.product(CHILDREN, MAKES)
} | OUTSIDE


def module_of(source: str, holds: str, folder: Path) -> Any:
    fill = FILL.format(child=holds != "Maker", maker=holds != "Child")
    file = folder / "ways.py"
    file.write_text(HEAD + source + fill)
    os.utime(file, (0, 0))
    spec = importlib.util.spec_from_file_location("ways", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaks_of(module: types.ModuleType) -> list[cyclescope.Leak]:
    gc.collect()
    module.Maker()
    return cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks


@pytest.mark.parametrize("holds", HOLDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_reference_to_the_maker_is_cut(name: str, holds: str, tmp_path: Path) -> None:
    module = module_of(PROGRAMS[name], holds, tmp_path)
    (leak,) = leaks_of(module)
    assert {(cut.owner.rpartition(".")[2], cut.edge) for cut in leak.cuts} == {("Child", ".boss")}
    assert "`Child.boss`" in leak.advice


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_weak_reference_to_the_maker_frees_it(name: str, tmp_path: Path) -> None:
    """That is the advice; the child stays as long as its maker."""
    source = PROGRAMS[name].replace("= boss\n", "= weakref.ref(boss)\n")
    source = source.replace("number, boss\n", "number, weakref.ref(boss)\n")
    source = source.replace(".boss = self", ".boss = weakref.ref(self)")
    source = source.replace('"boss", self', '"boss", weakref.ref(self)')
    source = source.replace("self.fill()\n", "self.fill()\n", 1)
    if "dataclass" in name:
        source = source.replace(
            "__post_init__(self):",
            "__post_init__(self):\n        self.boss = weakref.ref(self.boss)",
        )
    module = module_of("import weakref\n" + source, "both", tmp_path)
    gc.disable()
    maker = module.Maker()
    kids: list[Any] = [maker.kid] if hasattr(maker, "kid") else list(maker.kids)
    if isinstance(getattr(maker, "kids", None), dict):
        kids = list(maker.kids.values())
    assert all(kid.boss() is maker for kid in kids)
    arrays = [weakref.ref(it.array) for it in (maker, *kids)]
    del maker, kids
    assert [array() for array in arrays] == [None] * len(arrays)


GIVEN = """
class Maker:
    def __init__(self, kid=None):
        self.parts = kid if kid is not None else Child()
        self.fill()

class Child:
    def __init__(self):
        self.boss = None
        self.fill()
"""


REGISTERS = """
class Maker:
    def __init__(self):
        self.boss = None
        self.fill()

class Child:
    def __init__(self, {name}):
        self.{name} = {name}
        {name}.kid = self
        self.fill()
"""


WIRED = {
    "function": """
def link(maker, kid):
    maker.kid = kid
    kid.boss = maker
link(Maker(), Child())
""",
    "function that makes both": """
def make():
    maker = Maker()
    kid = Child()
    maker.kid = kid
    kid.boss = maker
make()
""",
    "by the attribute": """
def make():
    maker = Maker()
    maker.kid = Child()
    maker.kid.boss = maker
make()
""",
    "several": """
def link(maker, kids):
    maker.kids = kids
    for kid in kids:
        kid.boss = maker
link(Maker(), [Child(), Child()])
""",
    "constructor": """
def connect(maker):
    maker.kid = Child(maker)
connect(Maker())
""",
    "keyword of a constructor": """
def connect(maker):
    kid = Child(boss=maker)
    maker.kid = kid
connect(Maker())
""",
    "method of another": """
class Builder:
    def build(self, maker):
        maker.kid = Child(maker)
Builder().build(Maker())
""",
    "in a list": """
def connect(maker):
    maker.kid = Child([maker])
connect(Maker())
""",
}
WITHOUT_MAKER = """
class Maker:
    def __init__(self):
        self.fill()

class Child:
    def __init__(self, boss=None):
        self.boss = boss
        self.fill()
"""


@pytest.mark.parametrize("holds", HOLDS)
@pytest.mark.parametrize("name", WIRED)
def test_a_function_that_wires_both_tells_which_is_the_child(
    name: str, holds: str, tmp_path: Path
) -> None:
    module = module_of(WITHOUT_MAKER, holds, tmp_path)
    file = tmp_path / "ways.py"
    code = compile(WIRED[name], str(file), "exec")
    exec(code, vars(module))
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    owners = {cut.owner.rpartition(".")[2] for cut in leak.cuts}
    assert owners <= {"Child", "list"}
    assert "`Child.boss`" in leak.advice


def test_a_name_for_an_owner_goes_before_the_order_of_lines(tmp_path: Path) -> None:
    module = module_of(WITHOUT_MAKER, "both", tmp_path)
    adopts = "def adopt(kid, maker):\n    kid.parent = maker\n    maker.kid = kid\n"
    exec(f"{adopts}adopt(Child(), Maker())", vars(module))
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert [cut.edge for cut in leak.cuts] == [".parent"]


@pytest.mark.parametrize("name", ["owner", "parent", "trainer"])
def test_who_registers_with_an_owner_is_not_cut_off_from_it(name: str, tmp_path: Path) -> None:
    """The same lines may give a child to its maker, so the name decides."""
    module = module_of(REGISTERS.format(name=name), "both", tmp_path)
    gc.collect()
    module.Child(module.Maker())
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert [cut.edge for cut in leak.cuts] == [f".{name}"]


CAST = """
from typing import cast

class Maker:
    def __init__(self):
        self.kid = None
        self.fill()

class Child:
    def __init__(self, owner):
        self.owner = cast(Maker, owner)
        self.fill()
"""


def test_a_class_that_is_only_named_is_not_called(tmp_path: Path) -> None:
    module = module_of(CAST, "both", tmp_path)
    gc.collect()
    maker = module.Maker()
    maker.kid = module.Child(maker)
    del maker
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert [cut.edge for cut in leak.cuts] == [".owner"]


def test_what_the_code_does_not_tell_is_not_guessed(tmp_path: Path) -> None:
    """Nobody says which of the two made the other: any one reference is cut."""
    module = module_of(GIVEN, "both", tmp_path)
    gc.collect()
    kid = module.Child()
    maker = module.Maker(kid)
    kid.boss = maker
    del kid, maker
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert len(leak.cuts) == 1
    assert leak.cuts[0].proven
