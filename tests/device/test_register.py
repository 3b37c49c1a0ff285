"""Classes that a program registers: what is read, what is refused, and that none of it runs."""

from __future__ import annotations

import abc
import functools
import random
import re
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

import cyclescope
from cyclescope import register_framework
from support.nodes import Holder
from support.processes import run

pytestmark = pytest.mark.usefixtures("collector_paused")


class Slotted:
    """A class with all that can be registered, in slots."""

    __slots__ = ("__weakref__", "address", "dtype", "number", "owner", "shape", "size")

    def __init__(self, address: int, size: int, owner: object = None) -> None:
        self.address, self.size, self.owner = address, size, owner
        self.number, self.dtype, self.shape = 1, "bfloat16", (size // 2,)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


class Plain:
    """A class whose objects have all in their dictionaries."""

    def __init__(self, address: object, size: object) -> None:
        self.address, self.size = address, size

    def __getattribute__(self, name: str) -> Any:
        if name in ("address", "size"):
            raise AssertionError(name)
        return super().__getattribute__(name)


class Refused:
    """What must not be read."""

    constant = 5

    def __init__(self) -> None:
        self.address = self.size = 1

    @property
    def asked(self) -> int:
        raise AssertionError

    @functools.cached_property
    def cached(self) -> int:
        raise AssertionError

    def method(self) -> int:
        raise AssertionError


class Empty:
    __slots__ = ()


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    register_framework(
        Slotted,
        device="mydev",
        pointer="address",
        nbytes="size",
        device_index="number",
        dtype="dtype",
        shape="shape",
        owner="owner",
    )
    register_framework(Plain, device="cpu", pointer="address", nbytes="size")


def rows(buffers: Iterable[Any]) -> list[Any]:
    return sorted((b.device, b.pointer, b.bytes, b.dtype, b.shape) for b in buffers)


def find() -> list[Any]:
    leaks = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    return rows(buffer for leak in leaks for buffer in leak.buffers)


def test_all_that_can_be_registered_is_said() -> None:
    Holder(Slotted(0x1000, 64))
    assert find() == [("mydev:1", 0x1000, 64, "bfloat16", (32,))]


@pytest.mark.parametrize(
    ("devices", "found"),
    [("mydev", 1), ("mydev:1", 1), ("mydev:0", 0), ("gpu", 1), ("cpu", 0), (["cpu", "mydev"], 1)],
)
def test_the_name_of_the_device_can_be_given(devices: Any, found: int) -> None:
    Holder(Slotted(0x1000, 64))
    assert len(cyclescope.find_tensor_cycles(devices=devices, frozen=False).leaks) == found


def test_attributes_of_each_object() -> None:
    class Derived(Plain):
        def __init__(self) -> None:
            super().__init__(0x2000, 100)

    Holder([Plain(0x1000, 50), Derived(), Plain(0x1000, 50)])
    assert [row[:3] for row in find()] == [("cpu", 0x1000, 50), ("cpu", 0x2000, 100)]


@pytest.mark.parametrize(
    ("address", "size"),
    [
        (0, 5),
        (5, 0),
        (-5, 5),
        (5, -5),
        (None, 5),
        ("5", 5),
        (5, 5.0),
        (2**70, 5),
        (type("Index", (int,), {"__index__": lambda self: 1 / 0})(5), 5),
    ],
)
def test_what_is_no_memory(address: object, size: object) -> None:
    Holder(Plain(address, size))
    assert find() == []


@pytest.mark.parametrize("shape", [(-1, 2), (2, "3"), (2**70,), (2.0,), None])
def test_what_is_no_shape(shape: object) -> None:
    wrong = Slotted(0x1000, 64)
    wrong.shape = shape  # type: ignore[assignment]
    Holder(wrong)
    del wrong
    assert [row[-1] for row in find()] == [None]


def test_an_object_without_its_attributes() -> None:
    Holder([Plain.__new__(Plain), Slotted.__new__(Slotted)])
    assert find() == []


def test_memory_of_an_owner() -> None:
    owner = Plain(0x3000, 500)
    Holder(Slotted(0x3000, 10, owner))
    assert find() == []
    Holder([owner, Slotted(0x3000, 10, owner), Slotted(0x3100, 10, owner)])
    del owner
    assert [row[:3] for row in find()] == [("cpu", 0x3000, 500)]


def test_the_watch(watched: Callable[[], list[Any]]) -> None:
    Holder([Slotted(0x1000, 64), Plain(0x2000, 50)])
    alive = Slotted(0x3000, 64)
    Holder(alive)
    assert [row[:3] for row in rows(watched())] == [("cpu", 0x2000, 50), ("mydev:1", 0x1000, 64)]


def test_the_live_heap() -> None:
    kept = [Slotted(0x5000, 640), Slotted(0x5000, 640), Plain(0x6000, 50)]
    heap = cyclescope.heap()
    ours = {(b.device, b.bytes) for b in heap.buffers if "kept" in b.owner}
    assert ours == {("mydev:1", 640), ("cpu", 50)}
    assert "640 bytes on mydev:1" in cyclescope.why_alive(kept[0]).to_text()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("how", ["found", "watched"])
def test_random_programs_with_a_known_truth(
    seed: int, how: str, request: pytest.FixtureRequest
) -> None:
    collect = request.getfixturevalue("watched") if how == "watched" else None
    chance, alive, truth = random.Random(seed), [], {}
    for number in range(1, chance.randrange(2, 30)):
        address, size = 0x1000 * number, chance.randrange(1, 1000)
        make = chance.choice((Slotted, Plain))
        objects = [make(address, size) for _ in range(chance.randrange(1, 4))]
        if chance.random() < 0.3:
            alive.append(Holder(objects))
            continue
        truth[address] = size
        Holder({"a": objects[0], "b": tuple(objects[1:])})
    del objects
    found = find() if collect is None else rows(collect())
    assert sorted((row[1], row[2]) for row in found) == sorted(truth.items())


# --- What is refused ---


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("asked", "property"),
        ("cached", "cached_property"),
        ("method", "function"),
        ("constant", "int"),
        ("__init__", "function"),
    ],
)
def test_what_could_run_code_is_refused(name: str, kind: str) -> None:
    with pytest.raises(TypeError, match=rf"Refused\.{name} cannot be read: it is a {kind}"):
        register_framework(Refused, device="cuda", pointer=name, nbytes="size")
    with pytest.raises(TypeError, match=rf"Refused\.{name} cannot be read"):
        register_framework(Refused, device="cuda", pointer="address", nbytes="size", shape=name)


@pytest.mark.parametrize(
    "device", ["any", "gpu", "meta", "cuda:0", "Mine", "_mine", "1", "", "a b"]
)
def test_what_is_no_kind_of_device(device: str) -> None:
    with pytest.raises(ValueError, match=f'"{device}" is not a kind of device: use "cuda", "cpu"'):
        register_framework(Refused, device=device, pointer="address", nbytes="size")


def test_a_class_that_cannot_have_the_attribute() -> None:
    with pytest.raises(TypeError, match=r"Empty\.address cannot be read: the class has no such"):
        register_framework(Empty, device="cuda", pointer="address", nbytes="size")


@pytest.mark.parametrize("wrong", [Slotted, type("Derived", (Slotted,), {})])
def test_a_class_is_registered_once(wrong: type) -> None:
    with pytest.raises(ValueError, match="is known already"):
        register_framework(wrong, device="cuda", pointer="address", nbytes="size")


def test_a_class_of_a_known_framework() -> None:
    numpy: Any = pytest.importorskip("numpy", reason="NumPy is not installed")

    class Array(numpy.ndarray):  # type: ignore[misc, name-defined, unused-ignore]
        pass

    with pytest.raises(ValueError, match="Array is known already"):
        register_framework(Array, device="cuda", pointer="data", nbytes="nbytes")


@pytest.mark.parametrize("wrong", ["", "CUDA", "my device", "any", "meta", "gpu", "cuda:0", "5d"])
def test_a_kind_of_device_that_is_none(wrong: str) -> None:
    with pytest.raises(ValueError, match="device"):
        register_framework(Refused, device=wrong, pointer="address", nbytes="size")


def test_what_is_no_class() -> None:
    wrong: Any = SimpleNamespace(address=1)
    with pytest.raises(TypeError, match="needs a class, not namespace"):
        register_framework(wrong, device="cuda", pointer="address", nbytes="size")


def test_metaclasses_are_not_asked() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            raise AssertionError(name)

        def mro(cls) -> list[type]:
            return type.mro(cls)

    class Hostile(metaclass=Meta):
        def __init__(self) -> None:
            self.address, self.size = 0x9000, 90

    register_framework(Hostile, device="cpu", pointer="address", nbytes="size")
    Holder(Hostile())
    assert [row[:3] for row in find()] == [("cpu", 0x9000, 90)]


def test_without_a_watch_and_off() -> None:
    said = run(
        """
        import json
        import cyclescope

        class Array:
            def __init__(self):
                self.address, self.size, self.me = 5, 5, self

        class Wrong:
            @property
            def size(self):
                return 1

        cyclescope.register_framework(Array, device="npu", pointer="address", nbytes="size")
        try:
            cyclescope.register_framework(Wrong, device="npu", pointer="size", nbytes="size")
        except TypeError as error:
            print(json.dumps(str(error)[:28]))
        """,
        CYCLESCOPE_OFF="1",
    )
    assert said == "Wrong.size cannot be read: i"


@pytest.mark.parametrize("metaclass", [type, abc.ABCMeta])
def test_a_metaclass_is_refused(metaclass: type) -> None:
    with pytest.raises(TypeError, match="is a metaclass: register the class whose objects hold"):
        cyclescope.register_framework(metaclass, device="npu", pointer="a", nbytes="b")


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("device", 3, 'device is the name of a kind of device, such as "cuda", not 3'),
        ("pointer", None, "pointer is the name of an attribute, not None"),
        ("shape", 1.5, "shape is the name of an attribute, not 1.5"),
    ],
)
def test_what_is_no_name_is_said_to_be_none(argument: str, value: object, said: str) -> None:
    arguments: dict[str, Any] = {"device": "cuda", "pointer": "pointer", "nbytes": "nbytes"}
    with pytest.raises(TypeError, match=re.escape(said)):
        register_framework(type("Mine", (), {}), **arguments | {argument: value})
