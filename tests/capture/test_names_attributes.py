"""How an attribute is named, in each form in which CPython stores them."""

from __future__ import annotations

from collections import deque
from typing import Any

from support.names import Cases, Node, array, node

CASES = Cases(__name__, __file__)
case, step = CASES.case, CASES.step
test_names, test_every_mark_is_used = CASES.tests()


@case(node(".me"))
def attribute_inline() -> None:
    it: Any = Node()
    it.me = it


@case(node(".me"))
def attribute_after_vars() -> None:
    it: Any = Node()
    it.me = it
    assert vars(it)


@case(node(".me"))
def attribute_set_through_vars() -> None:
    it = Node()
    vars(it)["me"] = it


@case(node(".me"))
def attribute_of_dict_with_broken_key_sharing() -> None:
    it: Any = Node()
    for i in range(100):
        setattr(it, f"x{i}", i)
    it.me = it
    for i in range(100):
        delattr(it, f"x{i}")


@case(node(".me"))
def attribute_of_replaced_dict() -> None:
    it = Node()
    it.__dict__ = {"me": it, "data": it.data}


@case(node(".it's"), path=(r".da\nta",))
def attribute_with_odd_name() -> None:
    it = Node()
    setattr(it, "da\nta", it.__dict__.pop("data"))
    setattr(it, "it's", it)


class Slots:
    __slots__ = ("__weakref__", "data", "me")

    def __init__(self) -> None:  # at: Slots
        self.data = array()
        self.me: Any = self


class InheritedSlots(Slots):
    __slots__ = ("more",)


class SlotsAndDict(Slots):
    def touch(self) -> None: ...  # at: SlotsAndDict


@case(step("~.Slots", ".me", at="Slots"))
def slots() -> None:
    Slots()


@case(step("~.InheritedSlots", ".me"))
def slots_inherited() -> None:
    InheritedSlots()


@case(step("~.InheritedSlots", ".more"), path=(".data",))
def slots_of_both() -> None:
    it: Any = InheritedSlots()
    it.me = None
    it.more = it


@case(step("~.SlotsAndDict", ".extra", at="SlotsAndDict"))
def slots_and_dict() -> None:
    it: Any = SlotsAndDict()
    it.me = None
    it.extra = it


class Pair(tuple[Any, ...]):
    def touch(self) -> None: ...  # at: Pair


class Table(dict[Any, Any]):
    def touch(self) -> None: ...  # at: Table


class Row(list[Any]):
    def touch(self) -> None: ...  # at: Row


class Bag(set[Any]):
    def touch(self) -> None: ...  # at: Bag

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class FrozenBag(frozenset[Any]):
    def touch(self) -> None: ...  # at: FrozenBag


class Queue(deque[Any]):
    def touch(self) -> None: ...  # at: Queue


class Text(str):
    me: Any
    data: Any

    def touch(self) -> None: ...  # at: Text


class Number(int):
    me: Any
    data: Any

    def touch(self) -> None: ...  # at: Number


@case(step("~.Pair", ".me", at="Pair"), path=("[1]",))
def tuple_subclass_with_dict() -> None:
    it: Any = Pair((0, array()))
    it.me = it


@case(step("~.Table", ".me", at="Table"), path=("['data']",))
def dict_subclass_with_attributes() -> None:
    it: Any = Table(data=array())
    it.me = it


@case(step("~.Table", "['me']", at="Table"))
def dict_subclass_items() -> None:
    it: Any = Table()
    it.data = array()
    it["me"] = it


@case(step("~.Row", ".me", at="Row"), path=("[0]",))
def list_subclass_with_attributes() -> None:
    it: Any = Row([array()])
    it.me = it


@case(step("~.Bag", ".me", at="Bag"))
def set_subclass_with_attributes() -> None:
    it: Any = Bag()
    it.me = it
    it.data = array()


@case(step("~.Bag", "an element", at="Bag"))
def set_subclass_elements() -> None:
    it: Any = Bag()
    it.add(it)
    it.data = array()


@case(step("~.FrozenBag", "an element", at="FrozenBag"), node(".bag"))
def frozenset_subclass_elements() -> None:
    it: Any = Node()
    it.bag = FrozenBag([it])


@case(step("~.Queue", "[1]", at="Queue"))
def deque_subclass() -> None:
    it: Any = Queue([0])
    it.append(it)
    it.data = array()


@case(step("~.Text", ".me", at="Text"))
def str_subclass_with_attributes() -> None:
    it = Text("text")
    it.me = it
    it.data = array()


@case(step("~.Number", ".me", at="Number"))
def int_subclass_with_attributes() -> None:
    it = Number(2**70)
    it.me = it
    it.data = array()
