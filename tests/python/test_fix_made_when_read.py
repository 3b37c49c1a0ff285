"""No patch makes a function hold its object weakly where nothing may hold that during the call."""

from __future__ import annotations

from pathlib import Path

import pytest

from cyclescope.__main__ import main as command

OP = """
import weakref


class Op:
    def __init__(self, k):
        self.k = k
        self.scale = lambda x: x * self.k

    def run(self, x):
        return self.scale(x)

"""

HOLDER = """
class Holder:
    op = {value}

    def go(self):
        return self.op.scale(2)
"""

PROGRAMS = {
    "a descriptor of another file": (
        "from other import Fresh\n" + OP + HOLDER.format(value="Fresh(Op)"),
        "class Fresh:\n    def __get__(self, holder, kind=None):\n        return self.make(3)\n",
    ),
    "what a class gets from a call": (
        "from other import fresh\n" + OP + HOLDER.format(value="fresh(Op)"),
        "from library import fresh\n",
    ),
    "a property that is set later": (
        "import other\n" + OP + HOLDER.format(value="None") + "\nother.install(Holder, Op)\n",
        "def install(kind, make):\n    kind.op = property(lambda holder: make(3))\n",
    ),
    "a module's own way": (
        "import other\n" + OP + "\nother.op = None\n\ndef go():\n    return other.op.scale(2)\n",
        "def __getattr__(name):\n    return factory(3)\n",
    ),
    "code in a text": (OP + "\ndef go():\n    return eval('Op(3).scale(2)')\n", ""),
    "the state of an object": (
        OP + "\ndef go():\n    return list(Op(3).__getstate__().values())[-1](2)\n",
        "",
    ),
    "a weak reference from elsewhere": (
        "import other\n"
        + OP
        + "\ndef go():\n    op = other.track(Op(3))()\n    return op.run(2)\n",
        "import weakref\n\n\ndef track(op):\n    return weakref.ref(op)\n",
    ),
}


def status(folder: Path, text: str, other: str) -> int:
    (folder / "pyproject.toml").touch()
    (folder / "other.py").write_text(other, encoding="utf-8")
    program = folder / "program.py"
    program.write_text(text, encoding="utf-8")
    line = 1 + text.splitlines().index("        self.scale = lambda x: x * self.k")
    return command(["fix", f"{program}:{line}", "--diff"])


@pytest.mark.parametrize("case", PROGRAMS)
def test_no_patch(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, other = PROGRAMS[case]
    assert status(tmp_path, text, other) == 1
    assert not capsys.readouterr().out


def test_but_for_what_is_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = OP + "\ndef go():\n    op = Op(3)\n    return op.run(2)\n"
    assert status(tmp_path, held, "") == 0
    assert "weakref.ref(self)" in capsys.readouterr().out
