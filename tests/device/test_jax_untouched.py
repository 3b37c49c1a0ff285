"""A watch or a look leaves programs with JAX as they are: each runs in a process of its own."""

from __future__ import annotations

import importlib.util

import pytest

from support.processes import run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)


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
