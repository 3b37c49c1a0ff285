"""A project in which ``cyclescope fix`` is tried, and texts that several projects have.

``program.py`` defines ``main()``, which prints and then drops what it made.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PROGRAM = "program.py"


@dataclass(frozen=True)
class Project:
    """A project; the line to mend is marked with ``# HERE``."""

    name: str
    program: str
    others: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    """A part of the reason for which there is no patch."""

    @property
    def line(self) -> int:
        """The line that is marked."""
        return next(n for n, text in enumerate(self.program.splitlines(), 1) if "# HERE" in text)


OWNER = """\
import numpy as np
BEFORE

class OwnerBASE:
    def __init__(self, dim):
        self.dim = dim
        self.array = np.zeros(1 << 16, np.uint8)
        self.cb = VALUE  # HERE

    def add(self, x):
        return x + self.dim

    def run(self, x):
        return self.cb(x)

AFTER

def main():
    USE
"""
LAMBDA = "lambda x: x + self.dim"
USE = "print(Owner(3).run(1))"


def owner(
    use: str = USE, value: str = LAMBDA, *, before: str = "", after: str = "", base: str = ""
) -> str:
    """A program with a class that has a callback, and a use of it."""
    parts = {"BEFORE": before, "BASE": base, "VALUE": value, "AFTER": after, "USE": use}
    text = OWNER
    for name, part in parts.items():
        text = text.replace(name, part)
    return text


def bound(use: str = USE, **rest: str) -> str:
    """The same with a bound method."""
    return owner(use, "self.add", **rest)


def decorated(text: str) -> str:
    """The same as a dataclass."""
    text = text.replace(
        "class Owner:", "@dataclass\nclass Owner:\n    dim: int\n    cb: object = None\n"
    )
    return text.replace("__init__(self, dim)", "__post_init__(self)").replace(
        "        self.dim = dim\n", ""
    )


ENGINE = """\
import numpy as np


class Engine:
    def __init__(self):
        self.count = 0
        self.array = np.zeros(1 << 16, np.uint8)
        self.on_event = lambda x: self.seen(x)  # HERE

    def seen(self, x):
        self.count += x
        return self.count


class Loop:
    def __init__(self):
        self.engine = Engine()
        self.engines = [Engine(), Engine()]

    def next(self):
        return 2

    def run(self):
        CALL


def main():
    print(Loop().run())
"""

MODULE = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)
        self.act = VALUE  # HERE

    def leaky(self, x):
        return x.clamp(min=0)

    def forward(self, x):
        return self.act(self.lin(x))


def main():
    with torch.no_grad():
        print(tuple(Net()(torch.ones(1, 2)).shape))
"""

CALLED = "def step(owner):\n    return owner.cb(5)\n"
CONFIGURED = "def option(config, name):\n    return getattr(config, name)\n"
OPTIONS = 'def option(config):\n    return config["cb"], {"cb": 1}\n'

APART = """
class Settings(dict):
    def __init__(self, **options):
        for name in options:
            setattr(self, name, options[name])

    def __getattr__(self, name):
        return self[name]

    @property
    def all(self):
        return dict(vars(self)), self.__dict__, [getattr(self, name) for name in vars(self)]
"""
