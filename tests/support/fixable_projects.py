"""Projects in which ``cyclescope fix`` patches ``program.py``, and some in which it must refuse.

There, another file or the rest of the program could notice the change.

``program.py`` defines ``main()``, which prints and then drops what it made.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from support.fixable import CLASSES, HEADERS, STYLES, styled

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
BOTH = "class Both(Owner, Settings):\n    pass\n"
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
]

UNREADABLE = "# coding: latin-1\ndef f(o):\n    return o.cb\n"
COPIED = "import copy\n\ndef clone(o):\n    return copy.deepcopy(o)\n"
FACTORY = """
class Factory:
    def __getitem__(self, i):
        return Owner(i)

    @property
    def new(self):
        return Owner(3)

    def __init__(self):
        self.made = [self]
"""
MATCHED = "def taken(o):\n    match o:\n        case Owner(cb=f):\n            return f\n"
MEMBERS = "def taken(o):\n    return [f for n, f in inspect.getmembers(o, inspect.isfunction)]\n"
FORK = "from concurrent.futures import ProcessPoolExecutor"

REFUSED = [
    Project(
        "made by its subscript",
        owner("f = Factory(); print(f[3].cb(1))", after=FACTORY),
        reason="f[3]",
    ),
    Project(
        "made by a property",
        owner("f = Factory(); print(f.new.cb(1))", after=FACTORY),
        reason="….new",
    ),
    Project(
        "made by a property elsewhere",
        owner("import b; f = b.Factory(); print(f.new.cb(1))"),
        {"b.py": "import program\n" + FACTORY.replace("Owner", "program.Owner")},
        reason="b.py",
    ),
    Project(
        "made by nobody known", owner("print(sum.other.cb(1)) if 0 else 0"), reason="never assigns"
    ),
    Project(
        "replaced by an argument",
        ENGINE.replace("CALL", "return self.engine.on_event(self.next())").replace(
            "return 2", "self.engine = None\n        return 2"
        ),
        reason="may assign",
    ),
    Project(
        "replaced in a list by an argument",
        ENGINE.replace("CALL", "return self.engines[0].on_event(self.engines.clear() or 2)"),
        reason="nothing may hold",
    ),
    Project(
        "a global replaced by an argument",
        owner(
            "global o; o = Owner(3); print(o.cb(drop()))",
            after="def drop():\n    global o\n    o = None\n    return 1\n",
        ),
        reason="nothing may hold",
    ),
    Project(
        "replaced in its call",
        owner("o = Owner(3); print(o.cb((o := 1)))"),
        reason="nothing may hold",
    ),
    Project(
        "deep copy elsewhere",
        bound(
            "import b; print(b.clone(Owner(3)).cb(1))".replace(
                "b.clone(Owner(3)).cb", "(lambda o: o.cb(1))"
            )
        ),
        {"b.py": COPIED},
        "deepcopy",
    ),
    Project("deep copy of a lambda's owner", owner(), {"b.py": COPIED}, "deepcopy"),
    Project("copy by another name", owner(), {"b.py": "from copy import copy as c\n"}, "copy"),
    Project("copy with all", owner(), {"b.py": "from copy import *\n"}, "copy"),
    Project(
        "average",
        bound(),
        {"b.py": "from torch.optim.swa_utils import AveragedModel\nf = AveragedModel\n"},
        "AveragedModel",
    ),
    Project(
        "clones", bound(), {"b.py": "f = torch.nn.modules.transformer._get_clones\n"}, "_get_clones"
    ),
    Project(
        "layers",
        owner(),
        {"b.py": "from torch import nn\nf = lambda o: nn.TransformerEncoder(o, 2)\n"},
        "TransformerEncoder",
    ),
    Project(
        "pickle", bound(), {"b.py": "import pickle\nf = lambda o: pickle.dumps(o)\n"}, "pickle"
    ),
    Project("from pickle", bound(), {"b.py": "from pickle import dump\n"}, "pickle"),
    Project("cloudpickle", owner(), {"b.py": "import cloudpickle\n"}, "cloudpickle"),
    Project("joblib", owner(), {"b.py": "from joblib import Parallel\n"}, "joblib"),
    Project("saved", bound(), {"b.py": "import torch\nf = lambda o: torch.save(o, 'x')\n"}, "save"),
    Project("process", bound(before=FORK + "\nf = ProcessPoolExecutor"), {}, "ProcessPoolExecutor"),
    Project(
        "workers", bound(), {"b.py": "f = lambda o: DataLoader(o, num_workers=2)\n"}, "num_workers"
    ),
    Project("spawn", bound(), {"b.py": "import torch.multiprocessing as mp\n"}, "multiprocessing"),
    Project("a layer", MODULE.replace("VALUE", "self.leaky"), {}, "torch.nn.Module"),
    Project(
        "a base of a base",
        bound(before="from b import Base", base="(Base)"),
        {"b.py": "import torch\nclass Base(torch.utils.data.Dataset):\n    pass\n"},
        "Dataset",
    ),
    Project(
        "derived elsewhere", bound(), {"b.py": "class Two(Owner, Module):\n    pass\n"}, "`Module`"
    ),
    Project(
        "derived as a tuple", owner(), {"b.py": "class Two(Owner, tuple):\n    pass\n"}, "weak"
    ),
    Project(
        "a property elsewhere",
        owner(),
        {"b.py": "class Two(Owner):\n    def cb(self):\n        pass\n"},
        "property",
    ),
    Project("matched", owner("print(taken(Owner(3))(1))", after=MATCHED), {}, "pattern"),
    Project(
        "matched elsewhere",
        owner(),
        {"b.py": "import program\n" + MATCHED.replace("Owner", "program.Owner")},
        "pattern",
    ),
    Project("matched by place", owner(), {"b.py": MATCHED.replace("cb=f", "d, f")}, "pattern"),
    Project(
        "members",
        owner("print(taken(Owner(3))[0](1))", before="import inspect", after=MEMBERS),
        {},
        "getmembers",
    ),
    Project(
        "fields",
        decorated(
            owner(
                "print(astuple(Owner(3))[1](1))",
                before="from dataclasses import astuple, dataclass",
            )
        ),
        {},
        "astuple",
    ),
    Project(
        "fields elsewhere",
        decorated(owner(before="from dataclasses import dataclass")),
        {"b.py": "import dataclasses as dc\nf = lambda o: dc.replace(o, dim=1)\n"},
        "replace",
    ),
    Project(
        "by name elsewhere",
        owner(),
        {"b.py": "import program\nf = getattr(program.Owner(3), 'cb')\n"},
        "string",
    ),
    Project("by a key elsewhere", owner(), {"b.py": OPTIONS, "c.py": CONFIGURED}, "string"),
    Project("by any name elsewhere", owner(), {"b.py": "import program\n" + CONFIGURED}, "name"),
    Project(
        "by its dictionary elsewhere", owner(), {"b.py": "def f(o):\n    return vars(o)\n"}, "vars"
    ),
    Project(
        "taken by whatever name", owner(), {"b.py": "def f(obj):\n    return obj.cb\n"}, "value"
    ),
    Project(
        "called on a temporary elsewhere",
        owner(),
        {"b.py": "def f(make):\n    return make().cb(1)\n"},
        "make()",
    ),
    Project(
        "its method is replaced elsewhere",
        bound(),
        {"b.py": "def f(o):\n    o.add = abs\n"},
        "replaced",
    ),
    Project(
        "assigned twice",
        owner().replace("self.cb = lam", "self.other = self.cb = lam"),
        {},
        "something else",
    ),
    Project(
        "finalized elsewhere",
        owner(),
        {"b.py": "import weakref\nf = lambda o: weakref.finalize(o, print)\n"},
        "finalizer",
    ),
    Project(
        "in a weak dictionary",
        owner(),
        {"b.py": "import weakref\nf = weakref.WeakValueDictionary()\n"},
        "Weak",
    ),
    Project(
        "seen to be freed",
        owner(
            "o = Owner(3); r = weakref.ref(o); del o; print(r() is None)", before="import weakref"
        ),
        {"b.py": CALLED},
        "freed",
    ),
    Project(
        "a proxy", owner(), {"b.py": "from weakref import proxy\nf = lambda o: proxy(o)\n"}, "freed"
    ),
    Project(
        "another class", bound("o = Owner(3); o.__class__ = Owner; print(o.cb(1))"), {}, "replaced"
    ),
    Project("its own dictionary", owner("print(vars(Owner(3))['c' + 'b'](1))"), {}, "vars"),
    Project(
        "its own dictionary in a method",
        owner(
            "print(Owner(3).find('c')(1))",
            before="class Base:\n    def find(self, n):\n        return vars(self)[n + 'b']\n",
            base="(Base)",
        ),
        {},
        "vars",
    ),
    Project(
        "of both classes",
        owner(after=APART + BOTH),
        {},
        "name is not known",
    ),
    Project(
        "of both classes elsewhere",
        owner(after=APART),
        {"b.py": "from program import *\n" + BOTH},
        "attribute",
    ),
    Project(
        "of both classes by other names",
        owner(after=APART),
        {
            "b.py": "from program import Settings as S, Owner\nclass Mixed(S):\n    pass\n",
            "c.py": "from b import *\nclass Both(Mixed, Owner):\n    pass\n",
        },
        "attribute",
    ),
    Project(
        "of both classes at run time",
        owner(after=APART + "Both = type('Both', (Owner, Settings), {})\n"),
        {},
        "run time",
    ),
    Project(
        "a method of another class",
        owner("print(Settings.all.fget(Owner(3))[0]['c' + 'b'](1))", after=APART),
        {},
        "any object",
    ),
    Project(
        "becomes of another class",
        owner("o = Owner(3); o.__class__ = Settings; print(o.dim)", after=APART),
        {},
        "another class",
    ),
    Project(
        "another's object in a method",
        owner(
            "print(Settings().of(Owner(3), 'c')(1))",
            after="class Settings:\n    def of(self, it, n):\n        self = it\n"
            "        return getattr(self, n + 'b')\n",
        ),
        {},
        "name is not known",
    ),
    Project(
        "taken by any name",
        owner(
            "print(attrgetter('c' + name)(Owner(3))(1))",
            before="from operator import attrgetter\nname = 'b'\n",
        ),
        {},
        "name is not known",
    ),
    Project(
        "processors are used",
        bound(before="import multiprocessing\npool = multiprocessing.Pool"),
        {},
        "multiprocessing",
    ),
    Project(
        "processors of PyTorch",
        bound(),
        {"b.py": "import torch.multiprocessing\nf = torch.multiprocessing.spawn\n"},
        "multiprocessing",
    ),
    Project(
        "a key to sort by, of a temporary",
        owner("print(sorted([1], key=Owner(3).cb))"),
        {},
        "value",
    ),
    Project(
        "a key for whatever",
        owner(
            "o = Owner(3); print(sorted([1], key=o.cb)(1))",
            after="def sorted(values, key):\n    return key\n",
        ),
        {},
        "value",
    ),
    Project(
        "a key that is kept",
        owner(
            "o = Owner(3); f = keep(key=o.cb); print(f(1))",
            after="def keep(key):\n    return key\n",
        ),
        {},
        "value",
    ),
    Project(
        "a key of a global",
        owner(
            "global o; o = Owner(3); print(sorted([Drops(), Drops()], key=o.cb))",
            after="class Drops:\n    def __add__(self, n):\n        global o\n        o = None\n"
            "        return n\n",
        ),
        {},
        "value",
    ),
    Project("one of two", owner("f = Owner(3).cb or print; f(1)"), {}, "value"),
    Project("a file of another encoding", owner(), {"b.py": UNREADABLE}, "b.py"),
    Project(
        "a property by call",
        owner(
            "f = Factory(); print(f.made.cb(1))",
            after="class Factory:\n    made = property(lambda self: Owner(3))\n",
        ),
        reason="….made",
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
