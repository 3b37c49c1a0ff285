"""Projects in which ``cyclescope fix`` has no patch, as the rest of the program could notice it."""

from __future__ import annotations

from support.projects import (
    APART,
    CALLED,
    CONFIGURED,
    ENGINE,
    MODULE,
    OPTIONS,
    Project,
    bound,
    decorated,
    owner,
)

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
BOTH = "class Both(Owner, Settings):\n    pass\n"

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
        reason="perhaps nothing else keeps",
    ),
    Project(
        "a global replaced by an argument",
        owner(
            "global o; o = Owner(3); print(o.cb(drop()))",
            after="def drop():\n    global o\n    o = None\n    return 1\n",
        ),
        reason="perhaps nothing else keeps",
    ),
    Project(
        "replaced in its call",
        owner("o = Owner(3); print(o.cb((o := 1)))"),
        reason="perhaps nothing else keeps",
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
    Project(
        "named in a path",
        owner(after="import operator\nf = operator.attrgetter('o.cb')\n"),
        reason="'o.cb'",
    ),
    Project(
        "a method named in a path",
        bound(after="from unittest import mock\nf = lambda: mock.patch('program.Owner.add')\n"),
        reason="`add` is itself replaced, or reached by name",
    ),
    Project("getattr as a value", owner(after="get = getattr\n"), reason="getattr"),
    Project(
        "members by another name",
        owner(),
        {"b.py": "from inspect import getmembers as gm\nf = lambda o: gm(o)\nimport program\n"},
        "getmembers",
    ),
    Project(
        "swapped in a tuple",
        bound(after="def swap(o):\n    o.add, o.x = o.run, 1\n"),
        reason="itself replaced",
    ),
    Project(
        "replaced in a loop",
        bound(after="def swap(o):\n    for o.add in [print]:\n        pass\n"),
        reason="itself replaced",
    ),
    Project(
        "sees its caller",
        bound(after="def log():\n    warnings.warn('x', stacklevel=2)\n"),
        reason="stacklevel",
    ),
    Project(
        "stack by inspect",
        bound(after="import inspect\ndef log():\n    return inspect.stack()[1].function\n"),
        reason="`stack`",
    ),
    Project(
        "local variables",
        owner().replace("self.dim = dim", "self.dim = dim; print(sorted(locals()))"),
        reason="`locals`",
    ),
    Project(
        "a weak method",
        bound(before="import weakref", after="f = lambda o: weakref.WeakMethod(o.run)\n"),
        reason="WeakMethod",
    ),
    Project(
        "weak by another name",
        owner(),
        {"b.py": "import program\nfrom weakref import ref as wref\nf = lambda o: wref(o)\n"},
        "notice",
    ),
    Project(
        "kept weakly by itself",
        owner(
            before="import weakref",
            after="ALL = []\nclass Kept(Owner):\n"
            "    def keep(self):\n        ALL.append(weakref.ref(self))\n",
        ),
        reason="notice",
    ),
    Project(
        "a descriptor",
        owner().replace("    def __init__", "    cb = property(print)\n\n    def __init__", 1),
        reason="the class has `cb` too",
    ),
    Project(
        "of a tuple that was made",
        owner(before="from collections import namedtuple\nP = namedtuple('P', 'x')", base="(P)"),
        reason="weak references",
    ),
    Project(
        "a decorator that was made",
        owner(
            before="from functools import partial\nfrom dataclasses import dataclass\n"
            "record = partial(dataclass, slots=True)"
        ).replace("class Owner", "@record\nclass Owner"),
        reason="__slots__",
    ),
    Project(
        "a private name",
        owner().replace("self.cb", "self.__cb"),
        reason="another name outside of the class",
    ),
    Project(
        "a folder that is imported",
        owner("from lib import user; print(user.take(Owner(3))(1))"),
        {"lib/user.py": "def take(o):\n    return o.cb\n"},
        "lib/user.py",
    ),
    Project(
        "a folder in a folder that is imported",
        owner("from lib.deep import user; print(user.take(Owner(3))(1))"),
        {"lib/__init__.py": "", "lib/deep/user.py": "def take(o):\n    return o.cb\n"},
        "lib/deep/user.py",
    ),
    Project(
        "a reference by its type",
        owner(before="import weakref", after="f = lambda o: weakref.ReferenceType(o)\n"),
        reason="notice",
    ),
    Project(
        "a reference by a variable",
        owner(before="import weakref", after="new = weakref.ref\nf = lambda o: new(o)\n"),
        reason="notice",
    ),
    Project(
        "counts references",
        owner(after="import sys\nf = lambda o: sys.getrefcount(o)\n"),
        reason="getrefcount",
    ),
    Project(
        "warns of its caller",
        bound(after="import warnings\nf = lambda: warnings.warn('x', UserWarning, 2)\n"),
        reason="`warn`",
    ),
    Project(
        "replaced by a keyword",
        bound(after="from unittest import mock\nf = lambda: mock.patch.multiple(Owner, add=1)\n"),
        reason="itself replaced",
    ),
    Project(
        "an inner function assigns self",
        owner().replace(
            "        self.dim = dim\n",
            "        self.dim = dim\n        def swap():\n            nonlocal self\n"
            "            self = None\n        self.swap = 1\n",
        ),
        reason="`self` is assigned again",
    ),
]
