"""Advice is given only where it fits: these programs once got some that would break them."""

from __future__ import annotations

import enum
import functools
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from support.owners import found
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

BY_NAME = "Look the method up when it is called, by its name."


def array() -> Any:
    return numpy.zeros(5000)


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class Base:
    def __init__(self) -> None:
        self.array = array()
        self.store()

    def store(self) -> None: ...

    def step(self) -> None: ...

    def turn(self) -> None: ...

    def other(self) -> None: ...


class Plain(Base):
    def __init__(self) -> None:
        super().__init__()
        self.method_kept = self.step


class Inherited(Plain):
    """It finds the method of its base class."""

    def run(self) -> None: ...


class Overridden(Base):
    def store(self) -> None:
        self.method_kept = super().step

    def step(self) -> None:
        self.method_kept()


class Replaced(Base):
    """What it finds by the name is what has replaced the method."""

    def store(self) -> None:
        self.method_kept = self.turn
        self.__dict__["turn"] = len


class Replacing(Base):
    """A method of the attribute's name would take the place of the one of the class."""

    def store(self) -> None:
        self.__dict__["turn"] = self.other


class Wrapped(Base):
    def store(self) -> None:
        self.method_kept = types.MethodType(traced(Base.step), self)


class Foreign(Base):
    def store(self) -> None:
        def helper(self: Any) -> None: ...

        self.method_kept = types.MethodType(helper, self)


class Same(Base):
    def store(self) -> None:
        self.__dict__["step"] = self.step


class Appending(list[Any]):
    def __init__(self) -> None:
        super().__init__([array()])
        self.push = self.append


class Showing(Base):
    def store(self) -> None:
        self.method_kept = self.__repr__


@pytest.mark.parametrize(
    ("kind", "edge", "advised"),
    [
        (Plain, ".method_kept", BY_NAME),
        (Inherited, ".method_kept", BY_NAME),
        (Overridden, ".method_kept", "store a `weakref.WeakMethod` of it"),
        (Replaced, ".method_kept", "store a `weakref.WeakMethod` of it"),
        (Replacing, ".turn", "store a `weakref.WeakMethod` of it"),
        (Wrapped, ".method_kept", "Set `Wrapped.method_kept` to None when it is no longer needed."),
        (Foreign, ".method_kept", "Set `Foreign.method_kept` to None when it is no longer needed."),
        (Same, ".step", "Leave out this assignment: the object finds the method of its class"),
        (Appending, ".push", BY_NAME),
        (Showing, ".method_kept", "Set `Showing.method_kept` to None when it is no longer needed."),
    ],
)
def test_a_method_is_looked_up_by_name_only_if_it_is_found_so(
    kind: Callable[[], Any], edge: str, advised: str
) -> None:
    (leak,) = found(kind).leaks
    assert [cut.edge for cut in leak.cuts] == [edge]
    assert advised in leak.advice
    assert (BY_NAME in leak.advice) == (advised == BY_NAME)


def test_a_library_that_reads_its_container_gets_no_weak_references(
    install: Callable[..., Any],
) -> None:
    library = install(
        "standin_hooks",
        "class Layer:\n    def __init__(self):\n        self._hooks = {}\n"
        "    def register(self, hook):\n        self._hooks[len(self._hooks)] = hook\n",
    )

    class Hook:
        def __init__(self, layer: Any) -> None:
            self.layer = layer

        def __call__(self) -> None: ...

    def make() -> None:
        layer = library.Layer()
        layer.array = array()
        layer.register(Hook(layer))

    (leak,) = found(make).leaks
    assert "weak" not in leak.advice.partition("Or set")[0]


class Stage:
    def __init__(self) -> None:
        self.array = array()
        self.next: Any = self


def test_a_ring_is_not_told_as_an_object_that_refers_to_itself() -> None:
    def make() -> None:
        Stage()
        one, two = Stage(), Stage()
        one.next, two.next = two, one

    leaks = found(make).leaks
    assert sorted(leak.count for leak in leaks) == [1, 1]
    assert {"is the object itself" in leak.advice for leak in leaks} == {True, False}


class Listed:
    """A child knows its owners, of which there may be several."""

    def __init__(self, *owners: Listed) -> None:
        self.array = array()
        self.items: list[Listed] = []
        self.owners = [*owners]
        for owner in owners:
            owner.items.append(self)


def test_a_list_of_owners_is_the_way_back_and_not_what_an_owner_has() -> None:
    def make() -> None:
        owner = Listed()
        Listed(owner), Listed(owner)

    (leak,) = found(make).leaks
    assert {cut.edge for cut in leak.cuts} == {".owners"}


class Tree:
    """The root of the first is itself, and that of the second is the first."""

    def __init__(self, parent: Tree | None = None) -> None:
        self.array = array()
        self.root: Tree = self if parent is None else parent.root
        self.child: Tree | None = None
        if parent is not None:
            parent.child = self


def test_what_only_some_objects_store_is_no_property() -> None:
    report = found(lambda: Tree(Tree()))
    assert all("property" not in leak.advice for leak in report.leaks)
    assert all(leak.after is None for leak in report.leaks)


ELSEWHERE = """
class Config:
    def __init__(self: "Config", parent=None):
        self.parent = parent

class Block:
    def __init__(self, parent, array):
        self.array = array
        object.__setattr__(self, "parent", parent)

class Net:
    def __init__(self, array):
        self.block = Block(self, array)
"""


def test_a_line_of_another_class_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere_net.py").write_text(ELSEWHERE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import elsewhere_net  # type: ignore[import-not-found]

    sys.modules.pop("elsewhere_net")
    (leak,) = found(lambda: elsewhere_net.Net(array())).leaks
    assert [cut.edge for cut in leak.cuts] == [".parent"]
    assert "elsewhere_net.py:4" not in str(leak.to_markdown())
    assert leak.source is None or leak.source.line > 5


def test_what_a_user_sets_on_objects_of_a_library_is_not_merged_with_its_own(
    install: Callable[..., Any],
) -> None:
    library = install(
        "standin_parts",
        "class Part:\n    pass\n\n\nclass Whole:\n    def __init__(self):\n"
        "        self.part = Part()\n        self.part.whole = self\n",
    )

    def make() -> None:
        whole, one, two = library.Whole(), library.Part(), library.Part()
        whole.array = one.array = two.array = array()
        one.mate, two.pair = two, one
        one.again = one

    names = sorted(leak.summary for leak in found(make).leaks)
    assert len(names) == 3, names


class Holder:
    def __init__(self) -> None:
        self.array = array()


def test_an_enumeration_is_to_be_defined_once() -> None:
    def make() -> None:
        class Phase(enum.Enum):
            TRAIN = Holder()
            EVAL = (Holder(),)

        assert len(Phase) == 2

    for leak in found(make).leaks:
        assert "Define it once, at module level." in leak.advice


def test_what_was_given_a_method_is_no_wrapper_of_it() -> None:
    class Emitter:
        def __init__(self) -> None:
            self.callbacks: list[Any] = []

        def subscribe(self, callback: Any) -> Any:
            self.callbacks.append(callback)
            return lambda: self.callbacks.remove(callback)

    class Listener:
        def __init__(self, emitter: Emitter) -> None:
            self.array = array()
            self.unsubscribe = emitter.subscribe(self.hear)

        def hear(self) -> None: ...

    advice = [leak.advice for leak in found(lambda: Listener(Emitter())).leaks]
    assert any("Set `Listener.unsubscribe` to None" in text for text in advice)
    assert not any("Wrap the function" in text for text in advice)


class Link:
    """One of a chain, whose references are made elsewhere."""

    def __init__(self) -> None:
        self.array = array()
        self.before_this: Any
        self.after_this: Any
        self.before_this = self.after_this = None


def test_a_line_that_cannot_make_the_reference_is_not_shown() -> None:
    def make() -> None:
        one, other = Link(), Link()
        one.after_this, other.before_this = other, one

    report = found(make)
    assert report.leaks
    assert "self.before_this = self.after_this" not in report.to_text()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="f_locals is no longer a copy")
def test_a_copy_of_local_variables_cannot_be_changed() -> None:
    def make(batch: Any) -> None:
        try:
            raise ValueError("a")
        except ValueError as error:
            traceback.TracebackException.from_exception(error, capture_locals=True)
        assert batch is not None

    (leak,) = found(lambda: make(array())).leaks
    assert [cut.edge for cut in leak.cuts] == [".__traceback__"]


def test_a_cache_is_not_what_keeps_a_classes_variable() -> None:
    """Without the cached instance, the class keeps its variable all the same."""

    def make() -> None:
        table = array()

        class Rule:
            @functools.cache  # noqa: B019
            def score(self, x: float) -> float:
                return float(table.sum()) * x

        assert Rule().score(3) == 0

    (leak,) = found(make).leaks
    assert "not capture `table`" in leak.advice
    assert "keep no instance" not in leak.advice


class Scope(dict[str, Any]):
    def __init__(self, **names: Any) -> None:
        super().__init__(**names)
        self["self"] = self


def test_one_removal_is_told_once() -> None:
    def make() -> None:
        inner = Scope(outer=Scope(weights=array()))
        inner["outer"]["also"] = inner["outer"]

    for leak in found(make).leaks:
        assert "Also remove the item at `['self']`" not in leak.advice, leak.advice


class Average:
    def __init__(self) -> None:
        self.weights = array()
        self.after: list[Callable[[], None]] = []
        self.after.append(self.update)

    @traced
    def update(self) -> None: ...


def test_a_decorated_method_is_at_its_own_line() -> None:
    line = Average.update.__wrapped__.__code__.co_firstlineno  # type: ignore[attr-defined]
    text = found(Average).to_text()
    assert f"test_advice_fits.py:{line}\n" in text, text


@pytest.mark.parametrize("count", [3, 40, 400])
def test_many_methods_in_one_list_take_one_remedy(count: int) -> None:
    """It took minutes to try whether each of a thousand has to go."""

    class Owner(Base):
        def store(self) -> None:
            self.kept = [self.step] * count

    (leak,) = found(Owner).leaks
    assert "`step`, a bound method" in leak.advice
    assert len(leak.advice) < 1000


def test_the_marked_reference_is_what_the_advice_speaks_of() -> None:
    class Model:
        def __init__(self) -> None:
            self.array = array()
            self.callbacks: list[Any] = []

        def register(self, callback: Any) -> None:
            self.callbacks.append(callback)

    class Plotter:
        def __init__(self, model: Model) -> None:
            self.model = model
            model.register(self.refresh)

        def refresh(self) -> None: ...

    (leak,) = found(lambda: Plotter(Model())).leaks
    assert leak.advice.startswith("`Model.callbacks` contains `refresh`")
    assert [cut.edge for cut in leak.cuts] == ["[0]"]
    line = Plotter.__init__.__code__.co_firstlineno + 2
    assert leak.source is not None
    assert leak.source.marked == line


SET_OTHERWISE = {
    "only if asked": ("if given is None:\n            self.step = self.run", ""),
    "perhaps": ("try:\n            self.step = self.run\n        except ValueError: pass", ""),
    "after a return": ("if given: return\n        self.step = self.run", ""),
    "and asked for": ("self.step = self.run", "def use(it):\n    return hasattr(it, 'step')"),
    "and deleted": ("self.step = self.run", "def end(it):\n    del it.step"),
    "later": ("self.begin()\n\n    def begin(self):\n        self.step = self.run", ""),
    "elsewhere": ("self.step = self.run", "def swap(it):\n    it.step = abs"),
    "in the same method": (
        "self.step = self.run\n        if given:\n            self.step = given",
        "",
    ),
    "in a branch": ("self.step = self.run if given is None else given", ""),
    "in a class that derives from it": (
        "self.step = self.run",
        "class Other(Trainer):\n    def use(self):\n        self.step = abs",
    ),
}


@pytest.mark.parametrize("name", SET_OTHERWISE)
def test_what_is_set_otherwise_too_is_not_to_become_a_method(name: str, modules: Modules) -> None:
    store, more = SET_OTHERWISE[name]
    module = modules.load(
        "trained",
        f"""import numpy


class Trainer:
    def __init__(self, given=None):
        self.weights = numpy.zeros(1000)
        {store}

    def run(self, x):
        return x


class Unrelated:
    def __init__(self):
        self.step = None

{more}
""",
    )
    (leak,) = found(module.Trainer).leaks
    assert "Set `Trainer.step` to None when it is no longer needed." in leak.advice
    assert BY_NAME not in leak.advice
    assert leak.patch is None


def test_what_another_class_sets_does_not_matter(modules: Modules) -> None:
    module = modules.load(
        "plain",
        """import numpy


class Trainer:
    def __init__(self):
        self.weights = numpy.zeros(1000)
        self.step = self.run

    def run(self, x):
        return x


class Unrelated:
    def __init__(self):
        self.step = abs
""",
    )
    (leak,) = found(module.Trainer).leaks
    assert BY_NAME in leak.advice
