"""JAX's arrays: what is found, what must not be, and that nothing of the program's is touched."""

from __future__ import annotations

import gc
import importlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cyclescope
from support.nodes import Holder
from support.processes import run

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


def arrays_alive() -> int:
    return sum(type(each) is type(jnp.zeros(0)) for each in gc.get_objects())


def found(**options: Any) -> Any:
    return cyclescope.find_tensor_cycles(devices="any", frozen=False, **options)


@pytest.fixture
def watched() -> Iterator[Callable[[], list[Any]]]:
    """Collects, and returns the buffers that a watch saw go."""
    seen: list[Any] = []
    watch = cyclescope.observe_tensor_cycles(seen.append, devices="any")

    def collect() -> list[Any]:
        gc.collect()
        watch.flush()
        return [buffer for report in seen for leak in report.leaks for buffer in leak.buffers]

    yield collect
    watch.stop()


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


# --- Nothing of the program's is touched ---


def test_no_function_in_python_runs_and_no_array_is_made() -> None:
    """Neither in a look nor in a collection, whatever the sharding."""
    said = run(
        """
        import gc, json, sys
        import jax, jax.numpy as jnp, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        import cyclescope

        class Holder:
            def __init__(self, held):
                self.held, self.me = held, self

        mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
        one = Mesh(np.array(jax.devices()[:1]), ("a",))
        def make():
            return [
                jnp.ones((8, 8)),
                jax.device_put(jnp.ones((8, 8)), jax.devices()[1]),
                *(
                    jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, PartitionSpec(*spec)))
                    for spec in ((), ("a",), ("a", "b"), (None, "b"))
                ),
                jax.device_put(jnp.ones((8, 8)), NamedSharding(one, PartitionSpec())),
                jax.device_put(
                    jax.device_put(jnp.ones((8, 8)), NamedSharding(one, PartitionSpec("a"))),
                    jax.devices()[0],
                ),
            ]

        array = type(jnp.ones(1))
        def arrays():
            return sum(type(each) is array for each in gc.get_objects())

        called = []
        def profile(frame, event, argument):
            if event == "call":
                called.append(frame.f_code.co_filename)

        kept = make()
        gc.collect()
        gc.disable()
        before = arrays()
        sys.setprofile(profile)
        cyclescope.heap()
        cyclescope.why_alive(kept[2])
        sys.setprofile(None)
        same = arrays() == before
        Holder(make())
        sys.setprofile(profile)
        (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
        sys.setprofile(None)
        seen = []
        watch = cyclescope.observe_tensor_cycles(seen.append, devices="any")
        Holder(make())
        sys.setprofile(profile)
        gc.collect()
        sys.setprofile(None)
        watch.stop()
        of_jax = sorted({name for name in called if "/jax" in name})
        sizes = sorted(buffer.bytes for buffer in leak.buffers)
        again = sorted(buffer.bytes for l in seen[0].leaks for buffer in l.buffers)
        print(json.dumps([same, of_jax, sizes, again == sizes]))
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )
    same, of_jax, sizes, again = said
    assert same
    assert again
    # JAX has a callback of its own in every collection.
    assert all(name.endswith("jax/_src/lib/__init__.py") for name in of_jax), of_jax
    plain, replicated, over_a = 256, 4 * 256, 2 * 256
    assert sizes == sorted(
        [plain, plain, replicated, over_a, plain, over_a, plain, plain],
    )


def test_no_backend_is_made() -> None:
    said = run("""
        import gc, json
        import jax
        from jax._src import xla_bridge
        import cyclescope

        class Holder:
            def __init__(self):
                self.me = self

        watch = cyclescope.observe_tensor_cycles(print, devices="any")
        Holder()
        gc.collect()
        cyclescope.heap()
        cyclescope.find_tensor_cycles(devices="any")
        watch.stop()
        print(json.dumps(xla_bridge.backends_are_initialized()))
    """)
    assert said is False


def test_an_array_that_is_still_being_computed_is_not_waited_for() -> None:
    """Not in a look, nor in a collection, nor in a look at the live heap."""
    said = run("""
        import gc, json, os, sys
        import jax, jax.numpy as jnp
        import cyclescope

        class Holder:
            def __init__(self, held):
                self.held, self.me = held, self

        # Hours of work, of which nobody sees the end.
        slow = jax.jit(lambda x: jax.lax.fori_loop(0, 10**6, lambda _, y: jnp.sin(y @ y), x))
        slow.lower(jnp.ones((500, 500))).compile()
        found, seen = [], []
        watch = cyclescope.observe_tensor_cycles(seen.append, devices="any")
        result = slow(jnp.ones((500, 500)))
        Holder(result + 1)
        gc.collect()
        watch.flush()
        found += [leak.bytes_held for report in seen for leak in report.leaks]
        Holder(result + 1)
        found += [leak.bytes_held for leak in cyclescope.find_tensor_cycles(devices="any").leaks]
        cyclescope.heap()
        cyclescope.why_alive(result)
        print(json.dumps([found, result.is_ready()]))
        sys.stdout.flush()
        os._exit(0)
    """)
    assert said == [[1_000_000, 1_000_000], False]


def test_a_look_from_within_a_callback_of_a_donating_computation() -> None:
    """Where the array that is being donated cannot be asked for its address."""
    said = run("""
        import json
        import jax, jax.numpy as jnp
        import cyclescope

        class Holder:
            def __init__(self, held):
                self.held, self.me = held, self

        sizes = []
        def look(x):
            Holder(jnp.zeros(10))
            sizes.append(sum(leak.bytes_held for leak in
                             cyclescope.find_tensor_cycles(devices="any").leaks))
            cyclescope.heap()

        def step(x):
            jax.debug.callback(look, x)
            return x + 1

        compiled = jax.jit(step, donate_argnums=0)
        x = jnp.ones(1000)
        alias = jax.device_put(x, jax.devices()[0])
        for _ in range(3):
            x = compiled(x)
        jax.effects_barrier()
        print(json.dumps([sizes, float(x[0])]))
    """)
    assert said == [[40, 40, 40], 4.0]


# --- Beside JAX's own collection, and in time ---


def test_jax_imported_after_the_watch_began() -> None:
    said = run("""
        import gc, json
        import cyclescope

        class Holder:
            def __init__(self, held):
                self.held, self.me = held, self

        seen = []
        watch = cyclescope.observe_tensor_cycles(seen.append, devices="any")
        import jax, jax.numpy as jnp
        callbacks = len(gc.callbacks)
        gc.disable()
        for _ in range(3):
            Holder(jnp.zeros(1000))
            gc.collect()
        watch.stop()
        held = [leak.bytes_held for report in seen for leak in report.leaks]
        print(json.dumps([callbacks > 1, held]))
    """)
    assert said == [True, [4000, 4000, 4000]]


def test_the_guard_of_jax_sees_what_the_watch_sees() -> None:
    """`jax.array_garbage_collection_guard` says that there is a cycle, and we say which."""
    said = run("""
        import gc, io, json, sys
        import jax, jax.numpy as jnp
        import cyclescope

        class Holder:
            def __init__(self, held):
                self.held, self.me = held, self

        seen = []
        watch = cyclescope.observe_tensor_cycles(seen.append, devices="any")
        errors, sys.stderr = sys.stderr, io.StringIO()
        with jax.array_garbage_collection_guard("log"):
            Holder(jnp.zeros(1000))
            gc.collect()
        said, sys.stderr = sys.stderr.getvalue(), errors
        watch.stop()
        (leak,) = seen[0].leaks
        print(json.dumps(["garbage collector" in said, leak.bytes_held, str(leak.cuts[0])]))
    """)
    assert said[:2] == [True, 4000]


def test_devices_of_jax_are_taken() -> None:
    device = jax.devices()[0]
    for devices in (device, [device], ["gpu", device], "cpu"):
        Holder(jnp.ones(1000))
        (leak,) = cyclescope.find_tensor_cycles(devices=devices, frozen=False).leaks
        assert leak.bytes_held == 4000
    Holder(jnp.ones(1000))
    assert cyclescope.find_tensor_cycles(devices="gpu").leaks == []


def test_a_compiled_function_that_keeps_a_constant_is_named() -> None:
    constant = jnp.ones(777)
    compiled = jax.jit(lambda x: x + constant)
    compiled(jnp.ones(777))
    said = cyclescope.why_alive(constant).to_text()
    assert "ArrayImpl of 3.0 KiB on cpu" in said
    assert "`constant`" in said
    assert "Jaxpr" in said
    del compiled


def test_it_can_be_trained_bitwise_the_same() -> None:
    """A loop of 200 steps with a planted leak: the same weights with a watch and without."""
    program = """
        import gc, hashlib, json, sys
        import jax, jax.numpy as jnp, numpy as np
        import cyclescope

        class Trainer:
            def __init__(self, parameters):
                self.parameters = parameters
                self.on_step = lambda loss: self.losses.append(loss)
                self.losses = []

        def loss_of(parameters, x, y):
            hidden = jnp.tanh(x @ parameters["w1"] + parameters["b1"])
            return jnp.mean((hidden @ parameters["w2"] - y) ** 2)

        @jax.jit
        def step(parameters, x, y):
            loss, gradient = jax.value_and_grad(loss_of)(parameters, x, y)
            return jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradient), loss

        seen = []
        if WATCHED:
            watch = cyclescope.observe_tensor_cycles(seen.append, devices="any")
        key = jax.random.key(0)
        k1, k2, k3 = jax.random.split(key, 3)
        parameters = {
            "w1": jax.random.normal(k1, (8, 32)), "b1": jnp.zeros(32),
            "w2": jax.random.normal(k2, (32, 1)),
        }
        x = jax.random.normal(k3, (64, 8))
        y = jnp.sum(x, axis=1, keepdims=True)
        losses = []
        for number in range(200):
            trainer = Trainer(parameters)
            parameters, loss = step(trainer.parameters, x, y)
            trainer.on_step(loss)
            losses.append(float(loss))
            if number % 20 == 0:
                gc.collect()
        del trainer
        gc.collect()
        if WATCHED:
            watch.stop()
        digest = hashlib.sha256()
        for leaf in jax.tree.leaves(parameters):
            digest.update(np.asarray(leaf).tobytes())
        leaks = {leak.summary: leak for report in seen for leak in report.leaks}
        print(json.dumps([digest.hexdigest(), losses, sorted(leaks)]))
    """
    bare = run(program.replace("WATCHED", "False"))
    watched = run(program.replace("WATCHED", "True"))
    assert watched[:2] == bare[:2]
    assert bare[1][-1] < bare[1][0] / 5
    (leak,) = watched[2]
    assert "Trainer.on_step" in leak
    assert "self" in leak


# --- What grows ---


def test_a_list_of_arrays_that_grows_is_named() -> None:
    losses: list[Any] = []
    with cyclescope.LeakMonitor(
        every=1, devices="any", min_bytes=0, max_share=float("inf")
    ) as monitor:
        for number in range(40):
            losses.append({"loss": jnp.full(100, number)})
            monitor.step()
    (growth,) = monitor.found
    assert "losses" in growth.owner
    assert growth.tensors * 400 == growth.bytes
    assert "arrays" in growth.summary
    assert ".cpu()" not in growth.advice


def test_arrays_that_are_replaced_do_not_grow() -> None:
    state = {"w": jnp.ones(100), "b": jnp.ones(10)}
    with cyclescope.LeakMonitor(
        every=1, devices="any", min_bytes=0, max_share=float("inf")
    ) as monitor:
        for _ in range(60):
            state = jax.tree.map(lambda leaf: leaf * 0.9, state)
            monitor.step()
    assert monitor.found == []


def test_an_array_that_becomes_longer_is_named() -> None:
    past = jnp.ones((1, 4))
    with cyclescope.LeakMonitor(
        every=1, devices="any", min_bytes=0, max_share=float("inf")
    ) as monitor:
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


def test_the_adapter_is_the_one_that_is_tested() -> None:
    """An older jaxlib is not read at all, so these tests would prove nothing of it."""
    version = tuple(map(int, sys.modules["jaxlib.version"].__version__.split(".")[:2]))
    assert version >= (0, 10), "these tests need jaxlib 0.10 or later"


# --- Tracers that were stored ---


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


def test_memory_in_the_host_that_is_pinned() -> None:
    kinds = {memory.kind for memory in jax.devices()[0].addressable_memories()}
    if "pinned_host" not in kinds:
        pytest.skip("this JAX has no pinned memory on a CPU")
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    Holder(jax.device_put(jnp.ones(1000), sharding))
    (leak,) = cyclescope.find_tensor_cycles(devices="pinned").leaks
    assert [(b.device, b.bytes) for b in leak.buffers] == [("pinned", 4000)]
