"""TensorFlow's tensors and variables: what is found, what must not be, and that nothing waits.

`make test-devices` runs this with TensorFlow from the package index.
"""

from __future__ import annotations

import functools
import gc
import importlib
import random
from collections.abc import Callable
from typing import Any

import pytest

import cyclescope
from support.monitors import monitor_of_all
from support.nodes import Holder
from support.processes import run

tf: Any = None
np: Any = importlib.import_module("numpy")

pytestmark = pytest.mark.usefixtures("collector_paused")


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """With the first test, so that the heap of other files' tests stays small."""
    global tf
    tf = importlib.import_module("tensorflow")


DTYPES = ("float32", "bfloat16", "int8", "complex64", "bool", "float16", "int64", "uint16")
SHAPES = ((), (1,), (7,), (3, 5), (2, 0))


def found(**options: Any) -> Any:
    return cyclescope.find_tensor_cycles(devices="any", frozen=False, **options)


class Program:
    """Some cycles with tensors and variables, of which the memory that only they keep is known."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.alive: list[Any] = []
        self.truth: list[tuple[str, int]] = []

    def tensor(self) -> Any:
        dtype, shape = self.random.choice(DTYPES), self.random.choice(SHAPES)
        zeros = tf.zeros(shape, dtype)
        made = tf.Variable(zeros) if self.random.random() < 0.4 else tf.identity(zeros)
        del zeros
        if self.random.random() < 0.3:
            made.shape  # noqa: B018 - TensorFlow keeps it from then on.
        return made

    def make(self) -> None:
        for _ in range(self.random.randrange(1, 5)):
            self.cycle()

    def cycle(self) -> None:
        held: list[Any] = []
        for _ in range(self.random.randrange(1, 5)):
            tensor = self.tensor()
            held.append(tensor)
            fate = self.random.random()
            if fate < 0.2:
                self.alive.append(tensor)
                continue
            nbytes = tensor.dtype.size * int(np.prod(tensor.shape.as_list()))
            if nbytes:
                self.truth.append((tensor.dtype.name, nbytes))
            if fate < 0.5:
                held.append(tensor)  # twice
        # Has no memory of its own that is known.
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
        held += [tf.constant(["a", "b"]), table.resource_handle][: self.random.randrange(3)]
        self.random.shuffle(held)
        Holder([{"held": held}, (self.random.random(),)])


@pytest.mark.parametrize("seed", range(20))
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


def test_what_memory_is_called() -> None:
    kept = tf.Variable(tf.ones((3, 5), "bfloat16"))
    Holder(kept)
    assert found().leaks == []
    del kept
    gc.collect()
    Holder(tf.Variable(tf.ones((3, 5), "bfloat16")))
    (leak,) = found().leaks
    (buffer,) = leak.buffers
    assert (buffer.dtype, buffer.shape, buffer.bytes) == ("bfloat16", (3, 5), 30)
    assert (buffer.device, buffer.confirmed) == ("cpu", False)
    assert buffer.type_name.endswith("ResourceVariable")


def test_the_handle_of_a_variable_has_its_memory() -> None:
    Holder(tf.Variable(tf.ones((3, 5))).handle)
    (leak,) = found().leaks
    (buffer,) = leak.buffers
    assert (buffer.dtype, buffer.shape, buffer.bytes) == ("float32", (3, 5), 60)
    variable = tf.Variable(tf.ones((3, 5)))
    kept = [variable.handle]
    Holder(variable)
    del variable
    assert found().leaks == []
    assert len(kept) == 1


def sum_of(variable: Any) -> Any:
    return tf.function(lambda: tf.reduce_sum(variable)).get_concrete_function()


def test_what_a_function_has_captured_stays() -> None:
    kept = [tf.Variable(tf.ones((1024, 1024)))]
    total = sum_of(kept[0])
    gc.collect()
    assert "The memory stays" in cyclescope.why_alive(kept[0]).to_text()
    assert float(total()) == 1024 * 1024


class Called:
    """Refers to itself, and has a compiled method that was called."""

    def __init__(self) -> None:
        self.on_end = self.end
        self.weight = tf.Variable(tf.ones(1000))
        self.step = tf.function(lambda: self.weight * 2.0)
        self.step()

    def end(self) -> None: ...


def test_a_trainer_whose_step_was_called(watched: Callable[[], list[Any]]) -> None:
    Called()
    watched()
    assert 4000 in {buffer.bytes for buffer in watched()}


def test_a_layer_of_keras_that_refers_to_itself() -> None:
    layer = importlib.import_module("keras").layers.Dense(8)
    layer.build((None, 4))
    layer.callback = functools.partial(print, layer)
    del layer
    report = found()
    assert report.bytes_held == (4 * 8 + 8) * 4


def test_what_keeps_one_and_how_much_there_is() -> None:
    kept = {"last": tf.Variable(tf.ones((1024, 1024)))}
    said = cyclescope.why_alive(kept["last"])
    assert "ResourceVariable of 4.0 MiB on cpu: kept alive by 1" in said.to_text()
    assert "['last']" in said.to_text()


class Trainer:
    def __init__(self) -> None:
        self.losses: list[Any] = []

    def step(self) -> None:
        self.losses.append(tf.ones((64, 1024)) * 2)


def test_what_grows() -> None:
    trainer = Trainer()
    with monitor_of_all() as monitor:
        for _ in range(40):
            trainer.step()
            monitor.step()
    (growth,) = monitor.found
    assert "losses" in growth.owner
    assert growth.tensors * 64 * 1024 * 4 == growth.bytes
    assert "arrays such as float32 on cpu" in monitor.to_text()
    assert ".cpu()" not in growth.advice


ASYNCHRONOUS = """
import gc, json, threading
import tensorflow as tf
from tensorflow.python.eager import context
import cyclescope

class Holder:
    def __init__(self, held):
        self.held, self.me = held, self

gate = threading.Event()

def late(x):
    gate.wait()
    return x

later = tf.function(lambda x: tf.numpy_function(late, [x], tf.float32))
seen = []
watch = cyclescope.observe_tensor_cycles(seen.append, devices="any")
gc.collect()
gc.disable()
"""


# On some processors it says otherwise that results may differ slightly.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}


@pytest.mark.parametrize(
    "how",
    [
        "context.set_execution_mode(context.ASYNC)",
        "scope = context.execution_mode(context.ASYNC); scope.__enter__()",
    ],
)
def test_no_look_waits_for_a_value(how: str) -> None:
    """A collection holds the interpreter's lock, which the operation wants."""
    said = run(
        f"""{ASYNCHRONOUS}
ones, variable = tf.ones(1000), tf.Variable(tf.ones(10))
{how}
Holder(later(ones))
Holder(variable)
del variable
gc.collect()
watch.flush()
kept = later(ones)
why = cyclescope.why_alive(kept)
found = cyclescope.find_tensor_cycles(devices="any").leaks
gate.set()
print(json.dumps([leak.bytes_held for report in seen for leak in report.leaks]))
""",
        **QUIET,
    )
    assert said == [40]


def test_once_all_is_at_once_again_tensors_are_read() -> None:
    said = run(
        f"""{ASYNCHRONOUS}
with context.execution_mode(context.ASYNC):
    Holder(tf.ones(10) * 2)
    gc.collect()
Holder(tf.ones(20) * 2)
gc.collect()
watch.flush()
print(json.dumps([leak.bytes_held for report in seen for leak in report.leaks]))
""",
        **QUIET,
    )
    assert said == [80]


def test_neither_python_code_runs_nor_an_object_is_made() -> None:
    called, told = run(
        f"""{ASYNCHRONOUS}
import sys
kept = [tf.ones(3) * 2, tf.Variable([1.0])]
called = []
def profile(frame, event, argument):
    if event == "call" and "tensorflow" in frame.f_code.co_filename:
        called.append(frame.f_code.co_filename)

Holder([tf.ones(10) * 2, tf.Variable(tf.ones((5, 5)))])
sys.setprofile(profile)
gc.collect()
sys.setprofile(None)
watch.flush()
print(json.dumps([called, [leak.bytes_held for report in seen for leak in report.leaks]]))
""",
        **QUIET,
    )
    assert (called, told) == ([], [140])


def test_a_tensor_that_is_being_made() -> None:
    """It is tracked while its value is converted, and has no handle yet."""
    looked = run(
        """
import gc, json, tensorflow as tf, cyclescope
monitor = cyclescope.watch_growth(devices="any", every=1)
looked = []

class Value:
    def __len__(self):
        looked.append(sum(type(it).__name__ == "EagerTensor" for it in gc.get_objects()))
        cyclescope.heap()
        monitor.step()
        cyclescope.find_tensor_cycles(devices="any")
        return 3

    def __getitem__(self, place):
        if place > 2:
            raise IndexError
        return 1.0

tf.constant(Value())
print(json.dumps(looked[:1]))
""",
        **QUIET,
    )
    assert looked == [1]


def test_no_other_thread_runs_within_a_look() -> None:
    """TensorFlow fills the tuple of a shape while other threads run, and fails if they hold it."""
    errors, steps = run(
        """
import json, sys, threading, tensorflow as tf, cyclescope
sys.setswitchinterval(1e-4)
errors, steps, ends = [], [0], threading.Event()

@tf.function
def double(tensor):
    return tensor * 2

def work():
    try:
        while not ends.is_set():
            double(tf.ones(1000))
            steps[0] += 1
    except BaseException as error:
        errors.append(repr(error))

kept = [tf.ones(10) * number for number in range(200)]
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
while steps[0] < 500 and not errors:
    cyclescope.heap()
ends.set()
for thread in threads:
    thread.join()
print(json.dumps([errors, steps[0]]))
""",
        **QUIET,
    )
    assert errors == []
    assert steps >= 500
