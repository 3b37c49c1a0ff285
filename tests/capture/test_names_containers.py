"""How an element of a container is named."""

from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

from support.names import Cases, Node, array, node

CASES = Cases(__name__, __file__)
case, step = CASES.case, CASES.step
test_names, test_every_mark_is_used = CASES.tests()


class Text(str): ...


class Hostile:
    def __repr__(self) -> str:
        raise AssertionError("__repr__ was called")

    __str__ = __repr__


def dict_with(key: object) -> None:
    it: dict[Any, Any] = {"data": array()}
    it[key] = it


@case(step("dict", "['loss']"), path=("['data']",))
def key_str() -> None:
    dict_with("loss")


@case(step("dict", r"['it\'s\n']"), path=("['data']",))
def key_str_with_quote() -> None:
    dict_with("it's\n")


@case(step("dict", f"['{'x' * 200}…']"), path=("['data']",))
def key_str_long() -> None:
    dict_with("x" * 1000)


@case(step("dict", "[7]"), path=("['data']",))
def key_int() -> None:
    dict_with(7)


@case(step("dict", "[<int>]"), path=("['data']",))
def key_int_long() -> None:
    dict_with(10**100)


class Split(enum.Enum):
    TRAIN = 1

    def __repr__(self) -> str:
        raise AssertionError("__repr__ was called")


class Renamed(enum.Enum):
    FIRST = "first"

    @property
    def name(self) -> str:
        raise AssertionError("a property was read")


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Like:
    """No enumeration, though it has the attribute of one."""

    _name_ = "TRAIN"


@case(step("dict", "[test_names_containers.Split.TRAIN]"), path=("['data']",))
def key_of_an_enumeration() -> None:
    dict_with(Split.TRAIN)


@case(step("dict", "[test_names_containers.Renamed.FIRST]"), path=("['data']",))
def key_of_an_enumeration_with_a_property() -> None:
    dict_with(Renamed.FIRST)


@case(step("dict", "[(1, test_names_containers.Split.TRAIN)]"), path=("['data']",))
def key_with_a_member_of_an_enumeration() -> None:
    dict_with((1, Split.TRAIN))


@case(step("dict", "[<test_names_containers.Access>]"), path=("['data']",))
def key_of_two_flags() -> None:
    dict_with(Access.READ | Access.WRITE)


@case(step("dict", "[<test_names_containers.Like>]"), path=("['data']",))
def key_like_a_member_of_an_enumeration() -> None:
    dict_with(Like())


@case(step("dict", "[True]"), path=("['data']",))
def key_bool() -> None:
    dict_with(True)


@case(step("dict", "[None]"), path=("['data']",))
def key_none() -> None:
    dict_with(None)


@case(step("dict", "[1e+16]"), path=("['data']",))
def key_float() -> None:
    dict_with(1e16)


@case(step("dict", r"[b'a\x00']"), path=("['data']",))
def key_bytes() -> None:
    dict_with(b"a\x00")


@case(step("dict", "[('loss', 3)]"), path=("['data']",))
def key_tuple() -> None:
    dict_with(("loss", 3))


@case(step("dict", "[(1,)]"), path=("['data']",))
def key_tuple_of_one() -> None:
    dict_with((1,))


@case(step("dict", f"[<{__name__}.Hostile>]"), path=("['data']",))
def key_object() -> None:
    dict_with(Hostile())


@case(step("dict", f"[(1, <{__name__}.Hostile>)]"), path=("['data']",))
def key_tuple_of_object() -> None:
    dict_with((1, Hostile()))


@case(step("dict", f"[<{__name__}.Text>]"), path=("['data']",))
def key_of_str_subclass() -> None:
    dict_with(Text("loss"))


@case(step("dict", f"[{Node.__module__}.Node]"), path=("['data']",))
def key_class() -> None:
    dict_with(Node)


@case(step("dict", "a key"), node(".table"))
def key_itself() -> None:
    it: Any = Node()
    it.table = {it: 1}


@case(step("list", "[2]"), path=("[1]",))
def list_item() -> None:
    it: list[Any] = [0, array()]
    it.append(it)


@case(step("tuple", "[1]"), step("list", "[0]"), path=("[0]",))
def tuple_item() -> None:
    box: list[Any] = []
    box.append((array(), box))


class Point(NamedTuple):
    data: Any
    back: Any


@case(step("~.Point", ".back"), step("list", "[0]"))
def named_tuple_field() -> None:
    box: list[Any] = []
    box.append(Point(array(), box))


@case(step("set", "an element"), node(".members"))
def set_element() -> None:
    it: Any = Node()
    it.members = {1, it}


@case(step("frozenset", "an element"), node(".members"))
def frozenset_element() -> None:
    it: Any = Node()
    it.members = frozenset([1, it])


@case(step("collections.deque", "[70]"), node(".queue"))
def deque_item() -> None:
    it: Any = Node()
    it.queue = deque(range(70))
    it.queue.append(it)
    it.queue.extend("more")


@case(
    step("collections.defaultdict", ".default_factory"),
    step(
        "function",
        "closure variable 'table'",
        label="function default_factory.<locals>.<lambda>",
        at="default_factory",
    ),
    path=("['data']",),
)
def default_factory() -> None:
    table: Any = defaultdict(lambda: table)  # at: default_factory
    table["data"] = array()


@case(step("collections.OrderedDict", "['me']"), path=("['data']",))
def ordered_dict() -> None:
    it: Any = OrderedDict(data=array())
    it["me"] = it
    it.move_to_end("data")


@case(step("collections.OrderedDict", ".me"), path=("['data']",))
def ordered_dict_attribute() -> None:
    it: Any = OrderedDict(data=array())
    it.me = it
