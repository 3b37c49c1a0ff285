"""Random programs that store a reference in one of many ways, beside others that never run."""

from __future__ import annotations

import gc
import random
import re

import pytest

import cyclescope
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

SEEDS = 100

# The ways to store `parent` in `child.ATTRIBUTE`: statements of a method of the child (`self`,
# `owner`), of a method of the parent (`self`, `child`), or of a function (`parent`, `child`).
IN_CHILD = [
    "self.ATTRIBUTE = owner",
    "again = self.ATTRIBUTE = owner",
    "self.spare, self.ATTRIBUTE = None, owner",
    "setattr(self, 'ATTRIBUTE', owner)",
    "self.ATTRIBUTE: object = owner",
    "self.__dict__['ATTRIBUTE'] = owner",
    "vars(self).update(ATTRIBUTE=owner)",
    "super().__setattr__('ATTRIBUTE', owner)",
    "self.ATTRIBUTE = owner or self.ATTRIBUTE",
    "for self.ATTRIBUTE in [owner]: pass",
]
IN_PARENT = [
    "child.ATTRIBUTE = self",
    "again = child.ATTRIBUTE = self",
    "setattr(child, 'ATTRIBUTE', self)",
    "child.__dict__.update(ATTRIBUTE=self)",
    "(child.ATTRIBUTE, child.spare) = self, None",
]
IN_FUNCTION = [
    "child.ATTRIBUTE = parent",
    "child.ATTRIBUTE, parent.other = parent, None",
    "setattr(child, 'ATTRIBUTE', parent)",
    "vars(child)['ATTRIBUTE'] = parent",
    "child.__dict__.update({'ATTRIBUTE': parent})",
]
# What never runs, or stores something else; `{n}` makes the names different.
DECOYS = [
    "class Apart{n}:\n    def __init__(self, other):\n        self.ATTRIBUTE = other\n",
    "def never{n}(child, parent):\n    child.ATTRIBUTE = parent\n",
    "def also{n}(node):\n    node.ATTRIBUTE = None\n    node.ATTRIBUTE = 3\n",
    "class Tree{n}:\n    def grow(self, leaf):\n        leaf.ATTRIBUTE = self\n",
    "def wire{n}(a, b):\n    setattr(a, 'ATTRIBUTE', b)\n",
    "class Sub{n}(Child):\n    def attach(self, owner):\n        self.ATTRIBUTE = owner\n",
    "class Twin{n}:\n    ATTRIBUTE = 1\n    def set(self, it):\n        Twin{n}.ATTRIBUTE = it\n",
]


class Program:
    """Three files, and the statement that runs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        pick = self.random.choice
        self.attribute = pick(["parent", "root", "model", "engine"])
        self.where = pick(["init", "method", "base", "parent", "function", "other file", "glue"])
        others = IN_PARENT if self.where == "parent" else IN_FUNCTION
        is_childs = self.where in ("init", "method", "base")
        self.way = pick(IN_CHILD if is_childs else others).replace("ATTRIBUTE", self.attribute)
        self.has_base = self.where == "base" or self.random.random() < 0.3
        self.uses = self.random.random() < 0.5

    def decoys(self, has_child: bool, count: int) -> str:
        known = [it for it in DECOYS if has_child or "(Child)" not in it]
        texts = [self.random.choice(known).format(n=n) for n in range(count)]
        return "\n".join(texts).replace("ATTRIBUTE", self.attribute)

    def method(self, name: str, body: str) -> str:
        return f"    def {name}(self, owner):\n        {body}\n"

    def model(self) -> str:
        marked = self.way + "  # here"
        lines = ["import numpy\n", self.decoys(False, self.random.randrange(3))]
        if self.has_base:
            lines.append("class Base:\n    kind = 'base'\n")
            if self.where == "base":
                lines.append(self.method("attach", marked))
        lines.append(f"class Child{'(Base)' * self.has_base}:\n    label = 'child'\n")
        if self.where == "init":
            lines.append(self.method("__init__", marked))
        elif self.random.random() < 0.5:
            lines.append(f"    def __init__(self, owner):\n        self.{self.attribute} = None\n")
        else:
            lines.append(self.method("__init__", "pass"))
        if self.where == "method":
            lines.append(self.method("attach", marked))
        if self.uses:
            lines.append(f"    def use(self):\n        return self.{self.attribute}.array\n")
        if self.random.random() < 0.3:
            lines.append(self.method("swap", f"self.{self.attribute} = owner.{self.attribute}"))
        if self.random.random() < 0.3:
            lines.append(self.method("late", f"self.{self.attribute} = owner"))
        lines.append("class Parent:\n    def __init__(self):\n        self.kids = []\n")
        lines.append("        self.array = numpy.zeros(5000)\n")
        if self.where == "parent":
            lines.append(f"    def adopt(self, child):\n        {marked}\n")
        if self.where == "function":
            lines.append(f"def adopt(child, parent):\n    {marked}\n")
        lines.append(self.decoys(True, self.random.randrange(3)))
        return "\n".join(lines)

    def glue(self) -> str:
        """A file that imports nothing."""
        is_here = self.where == "glue"
        way = self.way + "  # here" if is_here else "pass"
        return f"def adopt(child, parent):\n    {way}\n"

    def main(self) -> str:
        lines = [
            "import random_glue\nimport random_model\n",
            self.decoys(False, self.random.randrange(2)),
        ]
        calls = {
            "init": "pass",
            "method": "child.attach(parent)",
            "base": "child.attach(parent)",
            "parent": "parent.adopt(child)",
            "function": "random_model.adopt(child, parent)",
            "other file": self.way + "  # here",
            "glue": "random_glue.adopt(child, parent)",
        }
        lines.append("def go():\n    parent = random_model.Parent()")
        lines.append("    child = random_model.Child(parent)\n    parent.kids.append(child)")
        lines.append(f"    {calls[self.where]}\n")
        return "\n".join(lines)


def place_of(program: Program, modules: Modules) -> str:
    """What is told: the right "line", "lines" or "class", "none", or what is wrong."""
    texts = {
        "random_model": program.model(),
        "random_glue": program.glue(),
        "random_main": program.main(),
    }
    loaded = {name: modules.load(name, text) for name, text in texts.items()}
    gc.collect()
    loaded["random_main"].go()
    leaks = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    told = [" ".join(leak.to_text().split()) for leak in leaks]
    assert len(told) == 1, told
    ((file, line),) = [
        (name, number)
        for name, text in texts.items()
        for number, it in enumerate(text.splitlines(), 1)
        if it.endswith("# here")
    ]
    sentence = told[0].split(" Held: ")[0].split("Fix: ")[1]
    several = re.match(r"(?:\S+, )?\S+ or \S+\.py:\d+: ", sentence)
    if several is not None:
        places = [(at[1], int(at[2])) for at in re.finditer(r"(\w+)\.py:(\d+)", several[0])]
        is_right = (file, line) in places and len(set(places)) == len(places)
        return "lines" if is_right else f"wrong lines: {sentence}\n{texts[file]}"
    place = re.match(r"\S*?(\w+)\.py:(\d+)(, in class `(\w+)`)?: ", sentence)
    if place is None:
        return "none"
    if place[4] is None:
        is_right = (place[1], int(place[2])) == (file, line)
        return "line" if is_right else f"wrong line: {sentence}\n{texts[place[1]]}"
    # The class is to have the statement.
    source = texts[place[1]].splitlines()
    start = next(n for n, it in enumerate(source) if it.startswith(f"class {place[4]}"))
    end = next((n for n, it in enumerate(source) if n > start and it[:1].strip()), len(source))
    is_right = place[1] == file and start < line <= end
    return "class" if is_right else f"wrong class: {sentence}\n{texts[place[1]]}"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_line_and_no_class_is_named_that_did_not_store_it(seed: int, modules: Modules) -> None:
    verdict = place_of(Program(seed), modules)
    assert verdict in ("line", "lines", "class", "none"), verdict
