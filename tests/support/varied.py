"""Leaking programs, each made from one number: shapes of cycles with other names and surroundings.

A shape says how the cycle closes. What is varied: all names, what else the objects, functions and
frames refer to, how the classes are made, how many tensors there are and where.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import ModuleType
from typing import Any

from support.varied_shapes import SHAPES

BASES = {
    "plain": "class {name}:\n",
    "subclass": "class Base{name}:\n    kind = 'base'\n\nclass {name}(Base{name}):\n",
    "slots": "class {name}:\n    __slots__ = {slots}\n",
    "slots without weak references": "class {name}:\n    __slots__ = {strong}\n",
}

CLASSES = ["Trainer", "Engine", "Runner", "Cell", "Logger", "Stage", "Unit", "Worker", "Shelf"]
NAMES = [
    *("helper", "boss", "callback", "on_step", "link", "partner", "engine", "parent", "owner"),
    *("state", "item", "peer", "source", "target", "hook", "model", "view", "cursor", "big"),
    *("extra", "cache", "entry", "error_kept", "job", "task", "record", "handle", "step"),
    # As a reference of a suspended generator is called.
    "frame",
]

HEAD = """
import asyncio, concurrent.futures, dataclasses, functools, sys, threading, types, weakref
"""


@dataclass(frozen=True)
class Varied:
    """A program: ``leak()`` leaks tensors that it makes by calling ``T()``."""

    number: int
    shape: str
    text: str

    @property
    def is_possible(self) -> bool:
        """False if this Python is too old for it."""
        return self.shape != "exception group" or sys.version_info >= (3, 11)

    def load(self, make: Callable[[], Any]) -> ModuleType:
        """The program as a module, which makes its tensors so."""
        module = ModuleType(f"varied_{self.number}")
        module.__dict__["T"] = make
        sys.modules[module.__name__] = module  # where dataclasses looks
        try:
            exec(compile(self.text, f"{module.__name__}.py", "exec"), module.__dict__)
        finally:
            del sys.modules[module.__name__]
        return module

    def names(self) -> set[str]:
        """Every name that the program has for something."""
        return names_in(self.text)


def names_in(text: str) -> set[str]:
    """Every name in a program's text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name):
                found.add(name)
            case ast.keyword(arg=str(name)) | ast.ExceptHandler(name=str(name)):
                found.add(name)
            case ast.Constant(value=str(name)):
                found.update(name.replace("(", " ").split())
            case ast.alias(name=name):
                found.update(name.split("."))
    return found


def varied(number: int) -> Varied:
    """The program of a number; all shapes come in turn."""
    random = Random(number)
    shape = list(SHAPES)[number % len(SHAPES)]
    classes = random.sample(CLASSES, 2)
    pool = iter(random.sample(NAMES, 12))
    names = {key: next(pool) for key in "vxyzfgnm"}
    wraps = [("", ""), ("", ""), ("[", "]"), ("(1, ", ")"), ("{'k': ", "}"), ("{", "}")]
    if "{error}" in SHAPES[shape] or shape in ("frame", "generator"):
        wraps = wraps[:5]  # what cannot be hashed, or is looked for in a list
    if shape in ("dict in itself", "list in itself"):
        wraps = [("", ""), ("[", "]"), ("{'k': ", "}")]
    wrap, unwrap = random.choice(wraps)
    owner = random.choice(["self", "self", "self", "me"])
    n, m, z = names["n"], names["m"], names["z"]
    fills = [
        f"{owner}.{z} = T()",
        f"{owner}.{z} = [1, T()]",
        f"{owner}.{z} = T(); {owner}.{m} = T()",
        f"{owner}.{z} = {{'t': T()}}",
    ]
    noises = ["pass", f"{n} = [1]; {owner}.{n} = {n}", f"{owner}.{n} = object()", f"{n} = [T()]"]
    fill, noise = random.choice(fills), random.choice(noises)
    uses_noise = noise.startswith(f"{n} =") and random.random() < 0.5
    local = random.choice(["pass", f"{n} = [1]", f"{n} = T()"])
    all_slots = [z, m, n, names["x"], names["y"]]
    if shape == "two ways back":
        all_slots.append(names["g"])
    replaced = {
        **names,
        "self": owner,
        "wrap": wrap,
        "unwrap": unwrap,
        "fill": fill,
        "noise": noise,
        "noise_B": random.choice(["pass", f"self.{n} = [1]", f"self.{n} = T()"]),
        "use": n if uses_noise else "1",
        "local_noise": local,
        "local_use": "1" if local == "pass" else n,
        "error": random.choice(["ValueError", "Problem"]),
        "many": str(random.randint(1, 4)),
        "reach": {
            "": f"[made.{names['x']}]",
            "(1, ": f"made.{names['x']}[1:]",
            "{'k': ": f"made.{names['x']}.values()",
        }.get(wrap, f"made.{names['x']}"),
    }
    for letter in "AB":
        kind = random.choice(list(BASES))
        if shape == "property" and letter == "A":
            kind = "plain"
        strong = tuple(all_slots)
        head = BASES[kind].format(name=letter, slots=(*strong, "__weakref__"), strong=strong)
        replaced[f"class_{letter}"] = head.rstrip("\n")
        replaced[f"class_{letter}_inner"] = head.rstrip("\n")
    lines = []
    for line in textwrap.dedent(SHAPES[shape]).strip().splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        made = line.strip().format(**replaced)
        lines += [indent + part for part in made.splitlines()]
    text = "\n".join(lines)
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for field in ("id", "name"):
            if getattr(node, field, None) in ("A", "B"):
                setattr(node, field, classes["AB".index(getattr(node, field))])
        if isinstance(node, ast.Name) and node.id in ("BaseA", "BaseB"):
            node.id = "Base" + classes["AB".index(node.id[-1])]
        if isinstance(node, ast.ClassDef) and node.name in ("BaseA", "BaseB"):
            node.name = "Base" + classes["AB".index(node.name[-1])]
    return Varied(number, shape, HEAD + ast.unparse(tree) + "\n")
