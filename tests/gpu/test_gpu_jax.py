"""JAX's arrays on a real GPU, each program in a process where JAX takes memory as it needs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed"),
]

MIB = 2**20

PREAMBLE = """
        import gc, json, sys
        import jax, jax.numpy as jnp
        import cyclescope

        assert jax.default_backend() == "gpu", "JAX sees no GPU: install jax[cuda12]"
        DEVICE = jax.local_devices()[0]
        MIB = 2**20
        gc.disable()

        class Holder:
            def __init__(self, held):
                self.held, self.me = held, self

        def array(mib, dtype=jnp.float32):
            made = jnp.ones(mib * MIB // jnp.dtype(dtype).itemsize, dtype=dtype)
            return made.block_until_ready()

        def in_use():
            return DEVICE.memory_stats()["bytes_in_use"]

        def rows(report):
            return sorted((b.device, b.dtype, b.bytes) for l in report.leaks for b in l.buffers)
"""


@pytest.fixture(autouse=True)
def gpu() -> None:
    """JAX says in each program whether there is a GPU; PyTorch need not be here."""


@pytest.fixture
def jax(program: Callable[..., Any]) -> Callable[[str], Any]:
    def run(source: str) -> Any:
        # XLA measures which kernels to take: by default two runs alike differ in the last bits.
        flags = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
        return program(PREAMBLE + source, XLA_PYTHON_CLIENT_PREALLOCATE="false", XLA_FLAGS=flags)

    return run


def test_the_bytes_of_a_cycle_are_those_that_jax_counts(jax: Callable[[str], Any]) -> None:
    said = jax("""
        array(1)
        before = in_use()
        Holder({"w": array(8), "b": [array(2, jnp.bfloat16), array(1, jnp.int8)]})
        grown = in_use() - before
        report = cyclescope.find_tensor_cycles()
        (leak,) = report.leaks
        print(json.dumps([leak.bytes_held, grown, in_use() - before, rows(report)]))
    """)
    held, grown, left, rows = said
    assert held == 11 * MIB
    # JAX counts the chunks of its allocator, up to twice as large as what is asked for.
    assert held <= grown < 2 * held
    assert left == 0
    assert rows == [
        ["cuda:0", "bfloat16", 2 * MIB],
        ["cuda:0", "float32", 8 * MIB],
        ["cuda:0", "int8", MIB],
    ]


def test_the_watch_sees_each_cycle_go(jax: Callable[[str], Any]) -> None:
    said = jax("""
        seen = []
        array(1)
        before = in_use()
        with cyclescope.observe_tensor_cycles(seen.append):
            for _ in range(3):
                Holder(array(4))
                gc.collect()
        held = [leak.bytes_held for report in seen for leak in report.leaks]
        print(json.dumps([held, in_use() - before]))
    """)
    assert said == [[4 * MIB] * 3, 0]


def test_what_looks_like_a_leak_is_none(jax: Callable[[str], Any]) -> None:
    said = jax("""
        deleted, donated, alive = array(1), array(1), array(1)
        deleted.delete()
        jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
        assert donated.is_deleted()
        Holder([deleted, donated, alive])
        del deleted, donated
        print(json.dumps([len(cyclescope.find_tensor_cycles().leaks), float(alive[0])]))
    """)
    assert said == [0, 1.0]


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ("'cuda'", 1),
        ("'cuda:0'", 1),
        ("'gpu'", 1),
        ("DEVICE", 1),
        ("['cpu', DEVICE]", 1),
        ("'cpu'", 0),
        ("'cuda:7'", 0),
        ("'any'", 1),
    ],
)
def test_devices(jax: Callable[[str], Any], devices: str, found: int) -> None:
    said = jax(f"""
        Holder(array(1))
        print(json.dumps(len(cyclescope.find_tensor_cycles(devices={devices}).leaks)))
    """)
    assert said == found


def test_what_is_alive(jax: Callable[[str], Any]) -> None:
    said = jax("""
        before = in_use()
        parameters = {"w": array(8), "b": array(2)}
        grown = in_use() - before
        heap = cyclescope.heap()
        ours = [b for b in heap.buffers if "parameters" in b.owner]
        why = cyclescope.why_alive(parameters["w"]).to_text()
        devices = sorted({b.device for b in ours})
        print(json.dumps([sum(b.bytes for b in ours), grown, devices, why]))
    """)
    size, grown, devices, why = said
    assert size == grown == 10 * MIB
    assert devices == ["cuda:0"]
    assert "8.0 MiB on cuda:0" in why
    assert "`parameters`" in why


def test_what_grows(jax: Callable[[str], Any]) -> None:
    said = jax("""
        losses = []
        monitor = cyclescope.LeakMonitor(every=1, min_bytes=0, max_share=float("inf"))
        with monitor:
            for step in range(40):
                losses.append({"loss": jnp.full(256, step)})
                monitor.step()
        (growth,) = monitor.found
        print(json.dumps([growth.owner, growth.bytes, growth.tensors]))
    """)
    owner, size, count = said
    assert "losses" in owner
    assert size == 1024 * count


def test_what_grows_beside_a_pytorch_that_has_not_initialised_cuda(
    jax: Callable[[str], Any],
) -> None:
    """PyTorch crashes if it is asked then whether it records a history of its allocations."""
    said = jax("""
        import torch

        kept = []
        with cyclescope.LeakMonitor(every=1, min_bytes=0, max_share=float("inf")) as monitor:
            for _ in range(40):
                kept.append(array(1))
                monitor.step()
        print(json.dumps([len(monitor.found), torch.cuda.is_initialized()]))
    """)
    assert said == [1, False]


def test_what_is_still_being_computed_is_not_waited_for(jax: Callable[[str], Any]) -> None:
    said = jax("""
        import os
        # A program with a loop would wait for each round itself: so there are many without one.
        slow = jax.jit(lambda y: jnp.sin(y @ y), donate_argnums=0).lower(
            jax.ShapeDtypeStruct((32768, 32768), jnp.float32)
        ).compile()
        # A kernel that is loaded waits for all that runs: so each is loaded before.
        x = slow(jnp.ones((32768, 32768)))
        (x + 1).block_until_ready()
        seen = []
        watch = cyclescope.observe_tensor_cycles(seen.append)
        for _ in range(30):
            x = slow(x)
        result = x
        Holder(result + 1)
        assert not result.is_ready(), "it is too fast to tell"
        gc.collect()
        watch.flush()
        held = [leak.bytes_held for report in seen for leak in report.leaks]
        Holder(result + 1)
        held += [leak.bytes_held for leak in cyclescope.find_tensor_cycles().leaks]
        cyclescope.heap()
        print(json.dumps([held, result.is_ready()]))
        sys.stdout.flush()
        os._exit(0)
    """)
    assert said == [[4096 * MIB] * 2, False]


def test_memory_of_the_host_that_belongs_to_a_gpu(jax: Callable[[str], Any]) -> None:
    said = jax("""
        from jax.sharding import SingleDeviceSharding
        pinned = SingleDeviceSharding(DEVICE, memory_kind="pinned_host")
        Holder(jax.device_put(array(1), pinned).block_until_ready())
        gpu = len(cyclescope.find_tensor_cycles(devices="cuda").leaks)
        Holder(jax.device_put(array(1), pinned).block_until_ready())
        print(json.dumps([gpu, rows(cyclescope.find_tensor_cycles(devices="any"))]))
    """)
    assert said == [0, [["pinned", "float32", MIB]]]


def test_memory_that_cupy_shows_counts_once(jax: Callable[[str], Any]) -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    said = jax("""
        import cupy
        made = array(4)
        Holder([made, cupy.asarray(made), cupy.asarray(made)])
        del made
        (leak,) = cyclescope.find_tensor_cycles().leaks
        print(json.dumps(leak.bytes_held))
    """)
    assert said == 4 * MIB


def test_no_backend_is_made(jax: Callable[[str], Any], program: Callable[..., Any]) -> None:
    said = program("""
        import gc, json
        import jax
        from jax._src import xla_bridge
        import cyclescope

        class Holder:
            def __init__(self):
                self.me = self

        watch = cyclescope.observe_tensor_cycles(print)
        Holder()
        gc.collect()
        cyclescope.heap()
        cyclescope.find_tensor_cycles()
        watch.stop()
        print(json.dumps(xla_bridge.backends_are_initialized()))
    """)
    assert said is False


def test_shards_on_several_gpus(jax: Callable[[str], Any]) -> None:
    said = jax("""
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        devices = jax.local_devices()
        if len(devices) > 1:
            mesh = Mesh(np.array(devices), ("a",))
            def put(*spec):
                sharding = NamedSharding(mesh, PartitionSpec(*spec))
                return jax.device_put(array(len(devices)), sharding)
            gc.collect()
            Holder([put("a"), put()])
        held = rows(cyclescope.find_tensor_cycles())
        print(json.dumps([len(devices), held]))
    """)
    count, held = said
    if count < 2:
        pytest.skip("this machine has one GPU")
    of_each = [MIB, count * MIB]
    assert held == [
        [f"cuda:{number}", "float32", size] for number in range(count) for size in of_each
    ]


def test_training_is_bitwise_the_same(jax: Callable[[str], Any]) -> None:
    """The times are printed, not judged: see `pytest -s`."""
    source = """
        import hashlib, time
        import numpy as np

        class Trainer:
            def __init__(self, parameters):
                self.parameters = parameters
                self.losses = []
                self.on_step = lambda loss: self.losses.append(loss)

        def loss_of(parameters, x, y):
            for layer in parameters["layers"]:
                x = jnp.tanh(x @ layer["w"] + layer["b"])
            return jnp.mean((x[:, :1] - y) ** 2)

        @jax.jit
        def step(parameters, x, y):
            loss, gradient = jax.value_and_grad(loss_of)(parameters, x, y)
            return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradient), loss

        seen = []
        watch = cyclescope.observe_tensor_cycles(seen.append) if WATCHED else None
        gc.enable()
        keys = jax.random.split(jax.random.key(0), 9)
        layers = [{"w": jax.random.normal(k, (512, 512)) / 23, "b": jnp.zeros(512)} for k in keys]
        parameters = {"layers": layers}
        x = jax.random.normal(keys[0], (256, 512))
        y = jnp.sum(x, axis=1, keepdims=True) / 30
        times = []
        for number in range(200):
            started = time.perf_counter()
            trainer = Trainer(parameters)
            parameters, loss = step(trainer.parameters, x, y)
            trainer.on_step(loss)
            loss.block_until_ready()
            times.append(time.perf_counter() - started)
        del trainer
        gc.collect()
        if watch is not None:
            watch.stop()
        digest = hashlib.sha256()
        for leaf in jax.tree.leaves(parameters):
            digest.update(np.asarray(leaf).tobytes())
        found = sorted({leak.summary for report in seen for leak in report.leaks})
        print(json.dumps([digest.hexdigest(), sorted(times)[100], found]))
    """
    bare, watched = (jax(source.replace("WATCHED", str(on))) for on in (False, True))
    print(f"median step: {bare[1] * 1e6:.0f} us bare, {watched[1] * 1e6:.0f} us watched")
    assert watched[0] == bare[0]
    (leak,) = watched[2]
    assert "Trainer.on_step" in leak
