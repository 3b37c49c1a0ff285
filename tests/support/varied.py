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

SHAPES = {
    # Functions and methods on their owner.
    "lambda": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}lambda *args: ({self}, {use}){unwrap}
        def leak():
            A()
        """,
    "inner function": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                def {f}(*args):
                    return {self}, {use}
                {self}.{x} = {wrap}{f}{unwrap}
        def leak():
            A()
        """,
    "default argument": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                def {f}(one=1, {v}={self}):
                    return {v}, {use}
                {self}.{x} = {wrap}{f}{unwrap}
        def leak():
            A()
        """,
    "closure and default": """
        {class_A}
            def __init__({self}):
                {fill}
                def {f}(one=1, {v}={self}):
                    return {v}, {self}
                {self}.{x} = {wrap}{f}{unwrap}
        def leak():
            A()
        """,
    "bound method": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}{self}.{f}{unwrap}
            def {f}(self, *args):
                pass
        def leak():
            A()
        """,
    "bound method of another": """
        {class_A}
            def __init__({self}, {v}):
                {fill}
                {self}.{x} = {v}.{f}
        {class_B}
            def __init__(self):
                {noise_B}
                self.{y} = {wrap}A(self){unwrap}
            def {f}(self, *args):
                pass
        def leak():
            B()
        """,
    "partial of a method": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}functools.partial({self}.{f}, 1){unwrap}
            def {f}(self, *args):
                pass
        def leak():
            A()
        """,
    "partial with its owner": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}functools.partial(print, 1, {self}){unwrap}
        def leak():
            A()
        """,
    "decorated method": """
        def {f}(call):
            @functools.wraps(call)
            def wrapper(*args):
                return call(*args)
            return wrapper
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}{f}({self}.{g}){unwrap}
            def {g}(self, *args):
                pass
        def leak():
            A()
        """,
    "cached method": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}functools.lru_cache(maxsize=None)({self}.{f}){unwrap}
            def {f}(self, *args):
                pass
        def leak():
            A()
        """,
    "iterator": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}map({self}.{f}, [1, 2]){unwrap}
            def {f}(self, *args):
                pass
        def leak():
            A()
        """,
    "generator": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}{self}.{f}(){unwrap}
            def {f}(self):
                {local_noise}
                yield 1
                yield self, {local_use}
        def leak():
            made = A()
            for {v} in {reach}:
                next({v})
            {v} = None
        """,
    "coroutine": """
        @types.coroutine
        def pause():
            yield
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {self}.{f}()
                {self}.{x}.send(None)
            async def {f}(self):
                {local_noise}
                await pause()
                return self, {local_use}
        def leak():
            A()
        """,
    "property": """
        def leak():
            {class_A_inner}
                def __init__({self}):
                    {fill}
                    {noise}
            {v} = A()
            A.{g} = property(lambda it: ({v}, it))
        """,
    "weak reference with a callback": """
        {class_A}
            def __init__({self}, other):
                {fill}
                {noise}
                {self}.{x} = weakref.ref(other, lambda _: ({self}, {use}))
        class Other:
            pass
        ALIVE = Other()
        def leak():
            A(ALIVE)
        """,
    "thread": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = threading.Thread(target={self}.{f})
            def {f}(self):
                pass
        def leak():
            A()
        """,
    # Objects that know each other.
    "itself": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {self}
        def leak():
            A()
        """,
    "child": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}B({self}){unwrap}
        {class_B}
            def __init__(self, {v}):
                {noise_B}
                self.{y} = {v}
        def leak():
            A()
        """,
    "child with the tensor": """
        {class_B}
            def __init__(self):
                {noise_B}
                self.{y} = {wrap}A(self){unwrap}
        {class_A}
            def __init__({self}, {v}):
                {fill}
                {noise}
                {self}.{x} = {v}
        def leak():
            B()
        """,
    "dataclasses": """
        @dataclasses.dataclass(eq=False)
        class A:
            {z}: object
            {x}: object = None
            def attach(self, {v}):
                self.{x} = {v}
        @dataclasses.dataclass(eq=False)
        class B:
            {y}: object
        def leak():
            {v} = A(T())
            {v}.attach(B({v}))
        """,
    "two ways back": """
        {class_A}
            def __init__({self}):
                {fill}
                {self}.{x} = lambda: {self}
                {self}.{g} = {self}.{f}
            def {f}(self):
                pass
        def leak():
            A()
        """,
    "ring": """
        {class_A}
            def __init__({self}):
                {fill}
                {self}.{x} = None
        def leak():
            {v} = [A() for _ in range({many})]
            for i, one in enumerate({v}):
                one.{x} = {v}[i - 1]
        """,
    "siblings": """
        {class_A}
            def __init__({self}, {v}):
                {fill}
                {self}.{x} = {v}
        class B:
            def __init__(self):
                self.{y} = [A(self) for _ in range({many})]
        def leak():
            B()
        """,
    "dict subclass": """
        class B(dict):
            pass
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = B({y}={self})
        def leak():
            A()
        """,
    "list subclass": """
        class B(list):
            pass
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = B([{self}])
        def leak():
            A()
        """,
    "dict in itself": """
        def leak():
            {v} = dict({x}=T(), {y}=1)
            {v}['{z}'] = {wrap}{v}{unwrap}
        """,
    "list in itself": """
        def leak():
            {v} = [T(), 1]
            {v}.append({wrap}{v}{unwrap})
        """,
    "namespace": """
        def leak():
            {v} = dict({x}=T())
            exec("def {f}(): pass", {v})
        """,
    "class in a function": """
        def leak():
            {v} = T()
            class A:
                {x} = 1
                def {f}(self):
                    return {v}
            A()
        """,
    # Functions.
    "recursion": """
        def leak():
            {v}, {y} = T(), [1]
            def {f}(n):
                return {v}, {y}, n and {f}(n - 1)
            {f}(2)
        """,
    "mutual recursion": """
        def leak():
            {v} = T()
            def {f}(n):
                return {v}, n and {g}(n - 1)
            def {g}(n):
                return n and {f}(n - 1)
            {f}(2)
        """,
    # Exceptions and frames.
    "exception in a local": """
        class Problem(Exception):
            pass
        def {f}():
            {local_noise}
            {v} = T()
            try:
                raise {error}(1)
            except {error} as error:
                {x} = {wrap}error{unwrap}
            return {local_use}
        def leak():
            {f}()
        """,
    "exception of a callee": """
        class Problem(Exception):
            pass
        def {g}({y}):
            {local_noise}
            raise {error}(1)
        def {f}():
            {v} = T()
            {x} = None
            try:
                {g}({v})
            except {error} as error:
                {x} = error
            return {x}
        def leak():
            {f}()
        """,
    "exception on an object": """
        class Problem(Exception):
            pass
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
            def {f}(self):
                {local_noise}
                try:
                    raise {error}(1)
                except {error} as error:
                    self.{x} = {wrap}error{unwrap}
        def leak():
            A().{f}()
        """,
    "exception with a cause": """
        class Problem(Exception):
            pass
        def {f}():
            {local_noise}
            {v} = T()
            try:
                try:
                    raise ValueError(1)
                except ValueError as error:
                    raise {error}(2) from error
            except {error} as error:
                {x} = error
            return {local_use}
        def leak():
            {f}()
        """,
    "exception group": """
        def {f}():
            {v} = T()
            {x} = []
            for i in range({many}):
                try:
                    raise ValueError(i)
                except ValueError as error:
                    {x}.append(error)
            try:
                raise ExceptionGroup("all", {x})
            except ExceptionGroup as group:
                {y} = group
            {x} = None
        def leak():
            {f}()
        """,
    "exc_info": """
        def {f}():
            {v} = T()
            {x} = None
            try:
                raise ValueError(1)
            except ValueError:
                {x} = sys.exc_info()
            return {v}
        def leak():
            {f}()
        """,
    "exc_info in three locals": """
        def {f}():
            {local_noise}
            {v} = T()
            try:
                raise ValueError(1)
            except ValueError:
                {g}, {x}, {y} = sys.exc_info()
            return {local_use}
        def leak():
            {f}()
        """,
    "exc_info on an object": """
        {class_A}
            def __init__({self}):
                {fill}
            def {f}(self):
                try:
                    raise ValueError(1)
                except ValueError:
                    self.{x} = {wrap}sys.exc_info(){unwrap}
        def leak():
            A().{f}()
        """,
    "frame": """
        def {f}():
            {local_noise}
            {v} = T()
            {x} = {wrap}sys._getframe(){unwrap}
            return {local_use}
        def leak():
            {f}()
        """,
    "future": """
        class Problem(Exception):
            pass
        def {f}():
            {local_noise}
            {v} = T()
            {x} = concurrent.futures.Future()
            try:
                raise {error}(1)
            except {error} as error:
                {x}.set_exception(error)
            try:
                {x}.result()
            except {error}:
                pass
        def leak():
            {f}()
        """,
    "task": """
        class Problem(Exception):
            pass
        async def {g}():
            raise {error}(1)
        async def {f}():
            {local_noise}
            {v} = T()
            {x} = asyncio.ensure_future({g}())
            try:
                await {x}
            except {error}:
                pass
        def leak():
            loop = asyncio.new_event_loop()
            loop.run_until_complete({f}())
            loop.close()
        """,
}

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
