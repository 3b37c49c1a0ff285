"""Projects in which ``cyclescope fix`` patches ``program.py``, as nothing else can notice it."""

from __future__ import annotations

import random
from collections.abc import Iterator

from support.fixable import CLASSES, HEADERS, STYLES, styled
from support.projects import (
    APART,
    CALLED,
    CONFIGURED,
    ENGINE,
    MODULE,
    OPTIONS,
    USE,
    Project,
    bound,
    decorated,
    owner,
)

MACHINE = """\
import numpy as np


class Stopped:
    pass


class Running:
    def __init__(self, machine):
        self.machine = machine
        self.name = "running"
        self.array = np.zeros(1 << 16, np.uint8)
        self.on_stop = lambda: (self.machine.enter(Stopped()), self.name)  # HERE


class Machine:
    def __init__(self):
        self.state = Running(self)

    def enter(self, state):
        self.state = state

    def stop(self):
        return self.state.on_stop()[1]


def main():
    print(Machine().stop())
"""

KEPT = """\
import numpy as np
import copy, pickle


def work():
    array = np.zeros(1 << 16, np.uint8)
    error = None
    try:
        int("x")
    except ValueError as e:
        error = e  # HERE
    print(error, copy.copy([1]), pickle.loads(pickle.dumps(1)))


def main():
    work()
"""

RAISES = """\
import numpy as np
import pytest


def work():
    array = np.zeros(1 << 16, np.uint8)
    with pytest.raises(ValueError) as e:  # HERE
        int("x")
    print(e.value)


def main():
    work()
"""
NAMED = """\
from argparse import ArgumentParser

args = ArgumentParser().parse_args([])
print(vars(args))
"""
STATES = "import copy\n\ndef kept(net):\n    return copy.deepcopy(net.state_dict())\n"
LAYERS = """\
from torch import nn

layer = nn.TransformerEncoderLayer(4, 2)
net = nn.TransformerEncoder(layer, 2)
other = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), 2)
"""
SAVES = """\
import torch


def save(net, n):
    torch.save({"net": net.state_dict(), "n": n + 1}, "x")
"""
EVENTS = """
class Callback:
    def on_end(self, owner):
        return owner.dim


def call(callback, name, owner):
    return getattr(callback, name)(owner)
"""

ORDER = """
class Ordered(Owner):
    def order(self, values):
        return sorted(values, key=self.cb), max(values, key=self.cb)

"""

MENDED = """
class Two:
    def __init__(self):
        self_ref = weakref.ref(self)
        self.other = lambda: self_ref().other
"""

PATCHED = [
    Project(
        "called elsewhere",
        owner("import b; print(b.step(Owner(1)), (o := Owner(2)).dim)"),
        {"b.py": CALLED},
    ),
    Project("two uses, and the state changes", MACHINE),
    Project("a call before its use", owner(value="lambda x: max(len(str(x)), 2) + self.dim")),
    Project("a call that decides", owner(value="lambda x: self.dim if len(str(x)) else 0")),
    Project("uses in a comprehension", owner(value="lambda x: [self.dim + i for i in range(x)]")),
    Project(
        "uses on several lines",
        owner(value="(lambda x:\n            self.dim +  # one\n            self.add(x))"),
    ),
    Project(
        "parentheses at both ends",
        owner(value="(lambda x:\n            (self.dim) +\n            (self.add(x)))"),
    ),
    Project(
        "a function of that name",
        ENGINE.replace("CALL", "return self.engine.on_event(2)"),
        {"b.py": "def engine():\n    pass\n"},
    ),
    Project("mended before", owner("Two(); " + USE, before="import weakref", after=MENDED)),
    Project("its name is taken", owner(value="lambda x: self.dim + self.add(x)", before="cb = 1")),
    Project(
        "a default and a rest", owner(value="lambda x, *a, k=2, **o: self.add(x) * k + self.dim")
    ),
    Project("copies of states", bound(), {"b.py": STATES}),
    Project("options of a parser", owner(), {"b.py": NAMED}),
    Project(
        "names in a module",
        owner(),
        {"b.py": "import numpy as np\ndef of(n):\n    return getattr(np, n)\n"},
    ),
    Project("names of something else", owner(), {"b.py": CONFIGURED}),
    Project("keys of something else", owner(), {"b.py": OPTIONS}),
    Project("pickles, but a lambda", owner("pickle.dumps([1]); " + USE, before="import pickle")),
    Project(
        "workers, but a lambda",
        owner(),
        {"b.py": "load = lambda d: DataLoader(d, num_workers=2)\n"},
    ),
    Project("no workers", bound(), {"b.py": "load = lambda d: DataLoader(d, num_workers=0)\n"}),
    Project(
        "loads a pickle",
        bound(),
        {"b.py": "import pickle\nf = lambda p: pickle.load(open(p, 'rb'))\n"},
    ),
    Project("saves a state", bound(), {"b.py": SAVES}),
    Project("layers of PyTorch", bound(), {"b.py": LAYERS}),
    Project("a copy of a dictionary", owner(), {"b.py": "def f(d):\n    return d.copy()\n"}),
    Project("reached by an attribute", ENGINE.replace("CALL", "return self.engine.on_event(2)")),
    Project(
        "an argument is made first",
        ENGINE.replace("CALL", "return self.engine.on_event(self.next())"),
    ),
    Project("reached in a list", ENGINE.replace("CALL", "return self.engines[1].on_event(2)")),
    Project(
        "one of a list", ENGINE.replace("CALL", "return [e.on_event(2) for e in self.engines]")
    ),
    Project(
        "a base of the project",
        bound(before="from b import Base", base="(Base)"),
        {"b.py": "class Base:\n    pass\n"},
    ),
    Project(
        "an abstract base",
        bound(before="from abc import ABC", base="(ABC)"),
    ),
    Project(
        "another class is matched",
        owner(USE),
        {"b.py": "match 1:\n    case int(real=r):\n        print(r)\n"},
    ),
    Project(
        "a dataclass",
        decorated(
            owner(
                "print('ab'.replace('a', 'b')); " + USE, before="from dataclasses import dataclass"
            )
        ),
    ),
    Project("an exception, whatever is copied", KEPT, {"b.py": "import copy\nf = copy.deepcopy\n"}),
    Project(
        "with raises, whatever is pickled", RAISES, {"b.py": "import pickle\nf = pickle.dumps\n"}
    ),
    Project(
        "what a class does with its own", owner("print(Settings(a=1).all); " + USE, after=APART)
    ),
    Project("what a class elsewhere does", owner(), {"b.py": "import program\n" + APART}),
    Project(
        "called by any name",
        owner("print(call(Callback(), 'on_' + 'end', Owner(3))); " + USE, after=EVENTS),
    ),
    Project("asked for", owner("o = Owner(3); print(o.run(1) if hasattr(o, 'cb') else 0)")),
    Project(
        "a key to sort by", owner("print(Ordered(3).order([2, 1]), Owner(3).run(1))", after=ORDER)
    ),
    Project(
        "a condition",
        owner("o = Owner(3); print(o.cb and o.cb(1), callable(o.cb) and o.cb(2))"),
    ),
    Project("an exception in a text", KEPT.replace("print(error,", "print('{}'.format(error),")),
    Project(
        "counts processors",
        bound("print(multiprocessing.cpu_count() > 0); " + USE, before="import multiprocessing"),
    ),
    Project(
        "a traceback is formatted",
        KEPT.replace(
            "    print(error,",
            "    import traceback\n    print(len(traceback.format_tb(error.__traceback__)))\n"
            "    print(error,",
        ),
    ),
    Project("a layer with a lambda", MODULE.replace("VALUE", "lambda x: self.leaky(x)")),
    Project(
        "a function of the attribute's name",
        owner().replace(
            "        self.cb = lambda x: x + self.dim  # HERE\n",
            "        def cb(x):\n            return x + self.dim\n\n        self.cb = cb  # HERE\n",
        ),
    ),
    Project(
        "another function has a self of its own",
        owner().replace(
            "        self.cb = ",
            "        def other():\n            self = 1\n            return self\n\n"
            "        other()\n        self.cb = ",
        ),
    ),
    Project(
        "none in the class",
        owner().replace("    def __init__", "    cb = None\n\n    def __init__", 1),
    ),
]

BODIES = (
    "SELF.CB = lambda x: (SELF.add(x), SELF.dim)",
    "SELF.CB = (lambda x=1, *y:\n           SELF.add(x) +  # 'one'\n           SELF.dim)",
    "SELF.CB = lambda x: [SELF.dim for _ in range(x)]  # SELF",
    "if SELF.dim:\n    SELF.CB: object = lambda x: f'é{SELF.dim:>{SELF.dim}} {x!r}'\n"
    "else:\n    SELF.CB = None",
    "SELF.CB = lambda x: SELF.add(x) if str(x) else SELF",
    "SELF.CB = lambda x, s='äé\\n名': ('''\nSELF\n''', SELF.add(x), SELF.dim, s)",
)


def several_uses(count: int, seed: int = 1) -> Iterator[tuple[str, bytes]]:
    """Programs whose lambda uses its owner more than once, a random choice of many ways."""
    chosen = random.Random(seed)
    for number in range(count):
        header, kind = chosen.choice(list(HEADERS)), chosen.choice(list(CLASSES))
        body, style = BODIES[number % len(BODIES)], chosen.choice(STYLES)
        line = next(line for line in CLASSES[kind].splitlines() if line.strip() == "BODY")
        outer = line[: -len("BODY")]
        parts = body.split("'''")
        parts[::2] = [part.replace("\n", "\n" + outer) for part in parts[::2]]
        text = HEADERS[header] + CLASSES[kind].replace(line, outer + "'''".join(parts))
        text = text.replace("SELF", chosen.choice(("self", "this", "själv")))
        text = text.replace("CB", chosen.choice(("cb", "_cb", "обр")))
        yield f"{header} / {kind} / {number % len(BODIES)} / {style}", styled(text, style)
