"""Programs whose leak ``cyclescope fix`` mends, written in many ways.

Each program defines ``main()``, which prints and then drops what it made: without the leak, nothing
is left of it.
"""

from __future__ import annotations

import itertools
import random
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

HEADERS = {
    "import": "import numpy as np\n",
    "docstring": '"""What it does."""\n\nimport numpy as np\n',
    "future": '"""What it does."""\nfrom __future__ import annotations\n\nimport numpy as np\n',
    "future alone": "from __future__ import annotations\nimport numpy as np  # arrays\n",
    "has weakref": "import weakref\nimport numpy as np\n",
    "weakref with others": "import os, weakref, sys\nimport numpy as np\n",
    "renamed": "import weakref as wr\nimport numpy as np\n",
    "has ref": "from weakref import WeakMethod, ref\nimport numpy as np\n",
    "ref is taken": "from weakref import ref\nimport numpy as np\nref = 1\n",
    "other name of it": "from weakref import WeakMethod\nimport numpy as np\n",
    "comments": "#!/usr/bin/env python\n# A licence.\n\n# About it.\nimport numpy as np\n",
    "no import first": "SIZE = 1 << 16\nimport numpy as np\n",
    "function first": "def nothing():\n    import numpy as weakly\n\nimport numpy as np\n",
    "names are taken": "import numpy as np\nself_ref = this_ref = själv_ref = 1\n",
}

OWNERS = {
    "lambda": "SELF.CB = lambda x: x + SELF.dim",
    "lambda with comment": "SELF.CB = lambda x: x + SELF.dim  # keeps it; 'SELF' too",
    "lambda of several lines": "SELF.CB = lambda x, *y: (\n    x +  # one\n    SELF.dim  # two\n)",
    "lambda in parentheses": "SELF.CB = (lambda x:\n           SELF.add(x) + len(SELF.array[:0]))",
    "lambda after other letters": "SELF.CB = lambda x, s='äé名': x + SELF.dim if s else SELF",
    "lambda with an f-string": "SELF.CB = lambda x: f'é{SELF.dim:>{SELF.dim}} {x!r}'",
    "lambda with a list": "SELF.CB = lambda x: [SELF.dim + i for i in range(x)]",
    "annotated lambda": "SELF.CB: object = lambda x: SELF.add(x)",
    "lambda of a number": "scale = 3\nSELF.CB = lambda x: x * scale + SELF.dim",
    "lambda of a parameter": "SELF.CB = lambda x: x * size + SELF.dim",
    "chosen": "if SELF.dim:\n    SELF.CB = lambda x: SELF.add(x)\nelse:\n    SELF.CB = None",
    "chosen later": "SELF.CB = None\nif SELF.dim:\n    SELF.CB = lambda x: SELF.add(x)",
    "inner function": "def inner(x):\n    return SELF.add(x)\n\nSELF.CB = inner",
    "inner function with docstring": (
        'def inner(x):\n    """It adds."""\n    # Here.\n    return SELF.add(x)\nSELF.CB = inner'
    ),
    "inner function with text": (
        'def inner(x):\n    text = """\nSELF\n"""\n    return text, SELF.add(x)\nSELF.CB = inner'
    ),
    "inner function that sorts": (
        "def inner(x):\n    return sorted([x, 1], key=lambda i: i * SELF.dim)\nSELF.CB = inner"
    ),
    "bound method": "SELF.CB = SELF.add",
    "bound method, chosen": "SELF.CB = None\nif SELF.dim:\n    SELF.CB = SELF.add",
    "bound method with comment": "SELF.CB = SELF.add  # fast",
}

CLASSES = {
    "plain": """
class Owner:
    def __init__(SELF, dim, size: int = 2):
        SELF.dim = dim
        SELF.array = np.zeros(1 << 16, np.uint8)
        BODY

    def add(SELF, x):
        return x + SELF.dim

    def run(SELF, x):
        return SELF.CB(x)


def main():
    owner = Owner(3)
    print(owner.run(1), owner.CB(2))
""",
    "documented": '''
class Base:
    """A base."""

    def close(self):
        pass


class Owner(Base):
    """With a docstring."""

    kind = "x"

    def __init__(SELF, dim, size=2):
        """Makes one."""
        super().__init__()
        SELF.array = np.zeros(1 << 16, np.uint8); SELF.dim = dim
        BODY
        print("made")

    def add(SELF, x):
        return x + SELF.dim


def main():
    for dim in (1, 2):
        owner = Owner(dim)
        if owner.CB is not None:
            print(owner.CB(dim))
''',
    "in a function": """
def make(dim):
    class Owner:
        class Inner:
            def __init__(SELF, dim, size: float = 2.0):
                SELF.dim, SELF.array = dim, np.zeros(1 << 16, np.uint8)
                BODY

            def add(SELF, x):
                return x + SELF.dim

    return Owner.Inner(dim)


def main():
    owner = make(4)
    print(owner.CB(2))
""",
    "set up elsewhere": """
import asyncio


class Owner(object):
    def __init__(SELF):
        SELF.dim = 5
        SELF.setup()

    async def go(SELF, x):
        await asyncio.sleep(0)
        return SELF.CB(x)

    def add(SELF, x):
        return x + SELF.dim

    def setup(SELF, size: int = 3):
        SELF.array = np.zeros(1 << 16, np.uint8)
        BODY


def main():
    owner = Owner()
    print(asyncio.run(owner.go(2)))
""",
}

KEPT = {
    "in a local": """
def work(n):
    array = np.zeros(1 << 16, np.uint8)
    error = None
    try:
        raise ValueError("é" * n)
    except ValueError as e:
        error = e  # for later
    if error is not None:
        print(repr(error), str(error), f"{error}")
    return n


def main():
    print(work(2))
""",
    "of a retry": '''
class Client:
    def __init__(self):
        self.calls = 0

    def call(self):
        self.calls += 1
        if self.calls < 3:
            raise OSError(self.calls)
        return self.calls

    def retry(self, times: int):
        """Tries."""
        array = np.zeros(1 << 16, np.uint8)
        last = None
        for _ in range(times):
            try:
                return self.call()
            except (OSError, ValueError) as problem:
                print("again:", problem)
                last = problem
        raise last


def main():
    print(Client().retry(5))
    try:
        Client().retry(1)
    except OSError as error:
        print(type(error), error)
''',
    "beside a text of several lines": '''
def work():
    array = np.zeros(1 << 16, np.uint8)
    found = None
    try:
        int("x")
    except ValueError as e:
        found = e

    text = f"""
{found}
    indented
"""  # stays
    # Said.
    print(text,
          "with",
      "less")
    if isinstance(found, ValueError):
        return len(found.args)


def main():
    print(work())
''',
    "of an async function": """
import asyncio


async def work():
    array = np.zeros(1 << 16, np.uint8)
    error = None
    try:
        await asyncio.sleep(0)
        raise KeyError("a")
    except KeyError as e:
        error = e
    await asyncio.sleep(0)
    print(error)


def main():
    asyncio.run(work())
""",
    "as exc_info": """
import sys


def work():
    array = np.zeros(1 << 16, np.uint8)
    try:
        raise ValueError(1)
    except ValueError:
        info = sys.exc_info()
        print(info[0], info[1])


def main():
    work()
""",
    "as a frame": """
import inspect


def work():
    array = np.zeros(1 << 16, np.uint8)
    frame = inspect.currentframe()
    print(frame.f_code.co_name)


def main():
    work()
""",
    "of pytest.raises": """
import pytest


def work():
    array = np.zeros(1 << 16, np.uint8)
    with pytest.raises(ValueError) as e:
        raise ValueError("text é")
    assert "text" in str(e.value)
    print(e.type, e.value.args[0])
    print(array.sum())


def main():
    work()
""",
    "of pytest.raises twice": """
from pytest import raises


class Test:
    def work(self):
        array = np.zeros(1 << 16, np.uint8)
        for n in range(2):
            with raises(ValueError, match="a") as info, raises(TypeError):
                pass
            with raises(ValueError) as info:
                raise ValueError("a", n)
            if n:
                assert info.match("a")
                print(info.value)


def main():
    try:
        Test().work()
    except BaseException as failed:
        print(type(failed).__name__)

    def again():
        array = np.zeros(1 << 16, np.uint8)
        with raises(ValueError) as info:
            int("x")
        print(info.value)

    again()
""",
}

STYLES = ("plain", "tabs", "two spaces", "crlf", "no end", "bom")
SELVES = ("self", "this", "själv")
ATTRIBUTES = ("cb", "_cb", "обр")


@dataclass(frozen=True)
class Program:
    """A program, and how it was made."""

    name: str
    source: bytes


def owners() -> Iterator[Program]:
    """Every way to keep a callback, in each kind of class, header and style: far too many."""
    parts = itertools.product(HEADERS, CLASSES, OWNERS, STYLES, SELVES, ATTRIBUTES)
    for header, kind, body, style, own, attribute in parts:
        name = " / ".join((header, kind, body, style, own, attribute))
        text = HEADERS[header] + _with_body(CLASSES[kind], OWNERS[body])
        text = text.replace("SELF", own).replace("CB", attribute)
        yield Program(name, styled(text, style))


def kept() -> Iterator[Program]:
    """Every way to keep an exception, in each style."""
    for header, kind, style in itertools.product(HEADERS, KEPT, STYLES):
        yield Program(f"{header} / {kind} / {style}", styled(HEADERS[header] + KEPT[kind], style))


def some(count: int, seed: int = 1) -> list[Program]:
    """A random choice of all programs, the same for a seed."""
    chosen = random.Random(seed)
    everything = list(owners())
    return chosen.sample(everything, min(count, len(everything))) + chosen.sample(
        list(kept()), min(count, len(HEADERS) * len(KEPT) * len(STYLES)) // 3
    )


def _with_body(text: str, body: str) -> str:
    line = next(line for line in text.splitlines() if line.strip() == "BODY")
    return text.replace(line, textwrap.indent(body, line[: -len("BODY")]))


def styled(text: str, style: str) -> bytes:
    """The text as another editor would have written it."""
    if style in ("tabs", "two spaces"):
        unit = "\t" if style == "tabs" else "  "
        lines = []
        for line in text.splitlines(keepends=True):
            bare = line.lstrip(" ")
            depth, rest = divmod(len(line) - len(bare), 4)
            lines.append(unit * depth + " " * rest + bare)
        text = "".join(lines)
    if style == "no end":
        text = text.rstrip("\n")
    data = text.encode()
    if style == "crlf":
        data = data.replace(b"\n", b"\r\n")
    return b"\xef\xbb\xbf" + data if style == "bom" else data
