"""JAX's arrays: what is found, what must not be, what grows, and what keeps one."""

from __future__ import annotations

import functools
import gc
import importlib
import random
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import cyclescope
from support.monitors import monitor_of_all
from support.nodes import Holder

jax: Any = None
jnp: Any = None
np: Any = importlib.import_module("numpy")

pytestmark = pytest.mark.usefixtures("collector_paused")


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """With the first test, so that the heap of other files' tests stays small."""
    global jax, jnp
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jnp = importlib.import_module("jax.numpy")


DTYPES = ("float32", "bfloat16", "int8", "complex64", "bool")
SHAPES = ((), (1,), (7,), (3, 5))


def found(**options: Any) -> Any:
    return cyclescope.find_tensor_cycles(devices="any", frozen=False, **options)


def test_the_adapter_is_the_one_that_is_tested() -> None:
    """An older jaxlib is not read at all, so these tests would prove nothing of it."""
    version = tuple(map(int, sys.modules["jaxlib.version"].__version__.split(".")[:2]))
    assert version >= (0, 10), "these tests need jaxlib 0.10 or later"


# --- What is found, of programs with a known truth ---


def rotated(x: Any) -> Any:
    flat = x.reshape(-1)
    return jnp.concatenate([flat[1:], flat[:1]]).reshape(x.shape)


class Program:
    """Some cycles with arrays, of which the memory that only they keep is known."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.alive: list[Any] = []
        self.truth: list[tuple[str, int]] = []

    def array(self) -> Any:
        return jnp.ones(self.random.choice(SHAPES), dtype=self.random.choice(DTYPES))

    def make(self) -> None:
        for _ in range(self.random.randrange(1, 5)):
            self.cycle()

    def cycle(self) -> None:
        arrays = [self.array() for _ in range(self.random.randrange(1, 5))]
        for array in list(arrays):
            fate = self.random.random()
            if fate < 0.15:
                array.delete()
            elif fate < 0.3:
                jax.jit(rotated, donate_argnums=0)(array)
                assert array.is_deleted()
            elif fate < 0.45:
                self.alive.append(array)
            else:
                self.truth.append((str(array.dtype), array.nbytes))
                if fate < 0.6:
                    arrays.append(array)  # twice in the tree
                elif fate < 0.7:
                    arrays.append(np.asarray(array).reshape(-1))  # a view of the same memory
        self.random.shuffle(arrays)
        holder = Holder(self.tree(arrays))
        if self.random.random() < 0.3:
            self.alive.append(self.tree([jnp.ones(3)]))
        del holder

    def tree(self, leaves: list[Any]) -> Any:
        if len(leaves) < 2:
            return leaves
        middle = self.random.randrange(1, len(leaves))
        parts = [self.tree(leaves[:middle]), self.tree(leaves[middle:])]
        return self.random.choice((list, tuple, lambda of: dict(zip("ab", of, strict=True))))(parts)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("how", ["found", "watched"])
def test_a_program_with_a_known_truth(seed: int, how: str, request: pytest.FixtureRequest) -> None:
    collect = request.getfixturevalue("watched") if how == "watched" else None
    program = Program(seed)
    program.make()
    if collect is None:
        buffers = [buffer for leak in found().leaks for buffer in leak.buffers]
    else:
        buffers = collect()
    said = sorted((buffer.dtype, buffer.bytes) for buffer in buffers)
    assert said == sorted(program.truth)
    assert {buffer.device for buffer in buffers} <= {"cpu"}
    assert all(not array.is_deleted() for array in jax.tree.leaves(program.alive))


def test_what_a_buffer_is_called() -> None:
    Holder(jnp.ones((3, 5), dtype=jnp.bfloat16))
    (leak,) = found().leaks
    (buffer,) = leak.buffers
    assert (buffer.dtype, buffer.shape, buffer.bytes) == ("bfloat16", (3, 5), 30)
    assert (buffer.device, buffer.confirmed) == ("cpu", False)
    assert buffer.type_name.endswith("ArrayImpl")


def test_numbers_smaller_than_a_byte_are_counted_as_the_device_packs_them() -> None:
    def make() -> int:
        array = jax.device_put(jnp.ones((64, 4), dtype=jnp.int4))
        Holder(array)
        return int(array.on_device_size_in_bytes())

    packed = make()
    (leak,) = found().leaks
    assert leak.bytes_held == packed


def test_keys_of_random_numbers() -> None:
    Holder(jax.random.split(jax.random.key(0), 8))
    (leak,) = found().leaks
    assert (leak.bytes_held, leak.buffers[0].dtype) == (64, "uint32")


def test_devices_of_jax_are_taken() -> None:
    device = jax.devices()[0]
    for devices in (device, [device], ["gpu", device], "cpu"):
        Holder(jnp.ones(1000))
        (leak,) = cyclescope.find_tensor_cycles(devices=devices, frozen=False).leaks
        assert leak.bytes_held == 4000
    Holder(jnp.ones(1000))
    assert cyclescope.find_tensor_cycles(devices="gpu").leaks == []


def test_memory_in_the_host_that_is_pinned() -> None:
    kinds = {memory.kind for memory in jax.devices()[0].addressable_memories()}
    if "pinned_host" not in kinds:
        pytest.skip("this JAX has no pinned memory on a CPU")
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    Holder(jax.device_put(jnp.ones(1000), sharding))
    (leak,) = cyclescope.find_tensor_cycles(devices="pinned").leaks
    assert [(b.device, b.bytes) for b in leak.buffers] == [("pinned", 4000)]


# --- What is not ---


def test_no_memory_no_leak() -> None:
    deleted, donated = jnp.ones(1000), jnp.ones(1000)
    deleted.delete()
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
    kind: Any = type(deleted)
    Holder([deleted, donated, jnp.ones((0, 3)), kind.__new__(kind)])
    del deleted, donated
    assert found().leaks == []


def test_tracers() -> None:
    leaked: list[Any] = []

    @jax.jit  # type: ignore[untyped-decorator, unused-ignore]
    def traced(x: Any) -> Any:
        leaked.append(Holder([x, x * 2]))
        return x

    traced(jnp.ones(1000))
    assert isinstance(leaked[0].held[0], jax.core.Tracer)
    leaked.clear()
    assert found().leaks == []


def test_an_array_that_a_finalizer_saves(watched: Callable[[], list[Any]]) -> None:
    saved: list[Any] = []

    class Saves:
        def __init__(self) -> None:
            self.array, self.me = jnp.ones(1000), self

        def __del__(self) -> None:
            saved.append(self.array)

    Saves()
    assert watched() == []
    assert float(saved[0].sum()) == 1000


def test_memory_that_numpy_shows_is_alive_as_long_as_it_does() -> None:
    array = jnp.ones(1000)
    view = np.asarray(array)
    Holder([array, np.asarray(array)])
    del array
    assert found().leaks == []
    assert view.sum() == 1000


def test_a_heap_counts_what_numpy_shows_once() -> None:
    array = jnp.ones(12345)
    views = [np.asarray(array), np.asarray(array)[10:]]
    of_size = [buffer for buffer in cyclescope.heap().buffers if buffer.bytes == array.nbytes]
    assert len(of_size) == 1
    assert len(views) == 2


# --- What grows ---


def test_a_list_of_arrays_that_grows_is_named() -> None:
    losses: list[Any] = []
    with monitor_of_all() as monitor:
        for number in range(40):
            losses.append({"loss": jnp.full(100, number)})
            monitor.step()
    (growth,) = monitor.found
    assert "losses" in growth.owner
    assert growth.tensors * 400 == growth.bytes
    assert "arrays" in growth.summary
    assert ".cpu()" not in growth.advice


def test_constants_of_compiled_functions_are_those_of_who_keeps_the_functions() -> None:
    """The cache of `jax.jit` has them too, as long as the functions are there."""
    functions: list[Any] = []
    with monitor_of_all() as monitor:
        for number in range(40):
            constant = jnp.full(1001, number)
            functions.append(jax.jit(lambda x, constant=constant: x + constant))
            functions[-1](constant)
            del constant
            monitor.step()
    owners = [growth.owner for growth in monitor.found]
    assert len(owners) == 1, owners
    assert "functions" in owners[0]
    shown = cyclescope.heap().buffers
    assert "functions" in {b.owner for b in shown if b.bytes == 4004 and "C++" not in b.owner}.pop()


def test_arrays_that_are_replaced_do_not_grow() -> None:
    state = {"w": jnp.ones(100), "b": jnp.ones(10)}
    with monitor_of_all() as monitor:
        for _ in range(60):
            state = jax.tree.map(lambda leaf: leaf * 0.9, state)
            monitor.step()
    assert monitor.found == []


def test_an_array_that_becomes_longer_is_named() -> None:
    past = jnp.ones((1, 4))
    with monitor_of_all() as monitor:
        for _ in range(30):
            past = jnp.concatenate([past, jnp.ones((1, 4))])
            monitor.step()
    # Each length is compiled anew, which JAX's caches keep; by default that is too little to tell.
    growth, *caches = monitor.found
    assert growth.pattern == "tensor-grows"
    assert "torch" not in growth.advice
    assert "past" in growth.owner
    assert {cache.pattern for cache in caches} <= {"objects-accumulate", "cache-without-limit"}
    assert all("`jax._src." in cache.owner for cache in caches)


# --- What keeps an array ---


class Model:
    """Something that a program stores intermediate values in."""

    def __init__(self) -> None:
        self.cache: Any = None


def leak_by(transform: str, model: Model) -> None:
    def loss(x: Any) -> Any:
        y = jnp.sin(x) * x
        model.cache = {"y": [y]}
        return y.sum()

    {"grad": jax.grad, "vmap": jax.vmap}[transform](loss)(jnp.ones((50, 20)))


MODEL = Model()


@pytest.mark.parametrize(
    ("transform", "name"), [("grad", "LinearizeTracer"), ("vmap", "BatchTracer")]
)
def test_what_a_leaked_tracer_keeps_is_named(transform: str, name: str) -> None:
    leak_by(transform, MODEL)
    (array,) = [
        part
        for part in gc.get_referents(MODEL.cache["y"][0])
        if type(part) is type(jnp.zeros(0)) and part.nbytes == 4000
    ]
    why = cyclescope.why_alive(array)
    (note,) = [note for note in why.notes if "tracer" in note]
    assert "Kept by a tracer leak" in note
    assert "MODEL.cache['y'][0]" in note
    assert f"({name})" in note
    assert "tracer leak" in why.to_text()
    MODEL.cache = None
    assert not [note for note in cyclescope.why_alive(array).notes if "tracer" in note]


def test_a_tracer_that_is_in_use_is_no_leak() -> None:
    said: list[Any] = []

    def loss(x: Any) -> Any:
        y = jnp.sin(x)
        MODEL.cache = y
        (array,) = [
            part for part in gc.get_referents(y) if type(part) is type(said_of) and part.size == 7
        ]
        said.append(cyclescope.why_alive(array).notes)
        return y.sum()

    said_of = jnp.zeros(0)
    jax.grad(loss)(jnp.ones(7))
    MODEL.cache = None
    assert not [note for note in said[0] if "tracer" in note]


def test_a_compiled_function_that_keeps_a_constant_is_named() -> None:
    constant = jnp.ones(777)
    compiled = jax.jit(lambda x: x + constant)
    compiled(jnp.ones(777))
    said = cyclescope.why_alive(constant).to_text()
    assert "ArrayImpl of 3.0 KiB on cpu" in said
    assert "`constant`" in said
    assert "Jaxpr" in said
    del compiled


def product_with(captured: Any, how: str) -> Any:
    if how == "captured":
        return jax.jit(lambda x: x @ captured)
    bound = Holder(captured)
    product = jax.jit(lambda self, x: x @ self.held, static_argnums=0)
    return functools.partial(product, bound)


@pytest.mark.parametrize("how", ["captured", "static"])
def test_an_entry_of_a_cache_of_jax_says_how_to_empty_it(how: str) -> None:
    array = jnp.ones((31, 17))
    died = weakref.ref(array)
    product = product_with(array, how)
    product(jnp.ones((3, 31)))
    (note,) = [note for note in cyclescope.why_alive(array).notes if "cache" in note]
    assert "of these references are entries of caches of JAX" in note
    assert "`jax.clear_caches()`" in note
    # What is said of it is so.
    del product
    jax.clear_caches()
    assert [note for note in cyclescope.why_alive(array).notes if "cache" in note] == []
    del array
    gc.collect()
    assert died() is None


def test_a_cache_that_jax_does_not_empty_is_not_called_so() -> None:
    array = jnp.ones((29, 17))
    held = Holder(array)
    product = jax.jit(lambda self, x: x * 2, static_argnums=0, donate_argnums=1)
    product(held, jnp.ones((3, 29)))
    jax.clear_caches()
    del held
    why = cyclescope.why_alive(array)
    # JAX's own cache of which arguments are donated (`donation_vector`), by their structure.
    kept_by_jax = [keeper for keeper in why.keepers if "jax._src" in str(keeper)]
    assert kept_by_jax
    assert [note for note in why.notes if "caches of JAX" in note or "a cache of JAX" in note] == []
