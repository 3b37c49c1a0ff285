"""Programs whose memory grows with the number of steps, and programs that only look alike.

Each takes a number of steps and what to call at the end of each. ``LEAKS`` says which owner must
be told of a program; of ``LOOK_ALIKES`` nothing may remain told at the end.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import queue
import random
import sys
from collections.abc import Callable, Iterator

import numpy as np
import torch

OnStep = Callable[[], object]
Program = Callable[[int, OnStep], None]
Tensor = torch.Tensor

WIDTH = 64
EPOCH = 50


def network() -> torch.nn.Module:
    """Two layers with something between them."""
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH)
    )


def block(kib: int = 16) -> Tensor:
    """A tensor of this size."""
    return torch.ones(kib * 256)


def train(net: torch.nn.Module, optimizer: torch.optim.Optimizer, size: int = 32) -> Tensor:
    """One step of training; the output."""
    optimizer.zero_grad()
    output: Tensor = net(torch.ones(size, WIDTH))
    output.square().mean().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return output


class Trainer:
    """Keeps what it is told to."""

    def __init__(self) -> None:
        self.net = network()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)
        self.outputs: list[Tensor] = []
        self.losses: list[Tensor] = []
        self.cache: dict[object, Tensor] = {}
        self.errors: dict[int, Exception] = {}
        self.table: np.ndarray = np.empty(0, object)
        self.window: collections.deque[Tensor] = collections.deque()
        self.hooks: list[Callable[[], Tensor]] = []

    def output(self) -> Tensor:
        """The output of one step."""
        return train(self.net, self.optimizer)


def losses_with_graph(steps: int, on_step: OnStep) -> None:
    """A list of losses that are not detached."""
    net = network()
    losses = []
    for _ in range(steps):
        losses.append(net(torch.ones(32, WIDTH)).square().mean())
        on_step()


def longer_past(steps: int, on_step: OnStep) -> None:
    """A tensor that is replaced by a longer one."""
    past = torch.zeros(0, 2048)
    for _ in range(steps):
        past = torch.cat([past, torch.ones(1, 2048)])
        on_step()


class Decoder:
    """Keeps keys of all tokens."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None

    def decode(self) -> None:
        """One token more."""
        token = torch.ones(2, 1, 1024)
        self.keys = token if self.keys is None else torch.cat([self.keys, token], dim=1)


def longer_keys(steps: int, on_step: OnStep) -> None:
    """The same in an attribute, along another dimension."""
    decoder = Decoder()
    for _ in range(steps):
        decoder.decode()
        on_step()


def slow_snapshots(steps: int, on_step: OnStep) -> None:
    """1 MiB in 20 steps, beside tensors that come and go."""
    trainer = Trainer()
    for step in range(steps):
        scratch = [block() for _ in range(step % 7)]
        if step % 20 == 19:
            trainer.cache[step] = block(1024)
        on_step()
        del scratch


def outputs_of_epochs(steps: int, on_step: OnStep) -> None:
    """Eight outputs in an epoch."""
    trainer = Trainer()
    for step in range(steps):
        output = trainer.output()
        if step % EPOCH < 8:
            trainer.outputs.append(output)
        on_step()


def clipped_gradients(steps: int, on_step: OnStep) -> None:
    """Gradients that are clipped and never cleared."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    for _ in range(steps):
        net(torch.ones(32, WIDTH)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        on_step()


def cache_by_step(steps: int, on_step: OnStep) -> None:
    """A dictionary with a key that never comes again."""
    trainer = Trainer()
    for step in range(steps):
        trainer.cache[f"step {step}"] = block()
        on_step()


def deque_without_end(steps: int, on_step: OnStep) -> None:
    """A deque without ``maxlen``."""
    trainer = Trainer()
    for _ in range(steps):
        trainer.window.append(block())
        on_step()


def closures_in_hooks(steps: int, on_step: OnStep) -> None:
    """Functions that capture a tensor, in a list."""
    trainer = Trainer()

    def capture(seen: Tensor) -> Callable[[], Tensor]:
        return lambda: seen

    for _ in range(steps):
        trainer.hooks.append(capture(block()))
        on_step()


def outputs_beside_losses(steps: int, on_step: OnStep) -> None:
    """Outputs are kept, and losses of 4 bytes beside them."""
    trainer = Trainer()
    for _ in range(steps):
        output = trainer.output()
        trainer.losses.append(output.detach().mean())
        trainer.outputs.append(output.detach())
        on_step()


failures: list[np.ndarray] = []


def arrays_in_module(steps: int, on_step: OnStep) -> None:
    """NumPy's arrays in a list of a module."""
    global failures
    failures = []
    for _ in range(steps):
        failures.append(np.ones(2048))
        on_step()
    failures.clear()


class Meter:
    """Keeps its history in the class."""

    history: list[Tensor] = []  # noqa: RUF012

    def update(self, value: Tensor) -> None:
        """Keep a value."""
        self.history.append(value)


def history_of_class(steps: int, on_step: OnStep) -> None:
    """A list that all instances of a class share."""
    Meter.history.clear()
    meter = Meter()
    for _ in range(steps):
        meter.update(block())
        on_step()
    Meter.history.clear()


@dataclasses.dataclass
class Sample:
    """An input with its target."""

    x: Tensor
    y: Tensor


def samples_in_list(steps: int, on_step: OnStep) -> None:
    """Instances with two tensors each, in a list of a function."""
    hard: list[Sample] = []
    for _ in range(steps):
        hard.append(Sample(block(), block()))
        on_step()


def cloned_gradients(steps: int, on_step: OnStep) -> None:
    """Copies of gradients, which are no copies of a model."""
    trainer = Trainer()
    grads: list[list[Tensor]] = []
    for _ in range(steps):
        trainer.output()
        params = trainer.net.parameters()
        grads.append([each.grad.clone() for each in params if each.grad is not None])
        on_step()


def running_total(steps: int, on_step: OnStep) -> None:
    """A total of losses with their graphs, which `retain_graph` keeps as well."""
    net = network()
    total = torch.zeros(())
    for _ in range(steps):
        loss = net(torch.ones(160, WIDTH)).square().mean()
        loss.backward(retain_graph=True)
        net.zero_grad()
        total = total + loss
        on_step()


def hidden_state(steps: int, on_step: OnStep) -> None:
    """A state that is never detached."""
    cell = torch.nn.GRUCell(WIDTH, WIDTH)
    hidden = torch.zeros(8, WIDTH)
    for _ in range(steps):
        hidden = cell(torch.ones(8, WIDTH), hidden)
        on_step()


def fail(kib: int = 16, depth: int = 0) -> None:
    """Raises an exception whose traceback keeps a tensor."""
    batch = block(kib)
    if depth:
        fail(1, depth - 1)
    raise ValueError(len(batch))


def fail_with(batch: Tensor) -> None:
    """Raises an exception whose traceback keeps a tensor that is given."""
    raise ValueError(len(batch))


def errors_in_list(steps: int, on_step: OnStep) -> None:
    """Exceptions with their tracebacks, in a list."""
    errors: list[Exception] = []
    for _ in range(steps):
        try:
            fail()
        except ValueError as error:
            errors.append(error)
        on_step()


def errors_by_step(steps: int, on_step: OnStep) -> None:
    """The same in a dictionary of an object, raised some calls further down."""
    trainer = Trainer()
    for step in range(steps):
        try:
            fail(depth=6)
        except ValueError as error:
            trainer.errors[step] = error
        on_step()


def tracebacks_in_list(steps: int, on_step: OnStep) -> None:
    """What `sys.exc_info()` returned."""
    seen = []
    for _ in range(steps):
        try:
            fail()
        except ValueError:
            seen.append(sys.exc_info())
        on_step()


def objects_in_array(steps: int, on_step: OnStep) -> None:
    """Tensors in one of NumPy's arrays of objects."""
    table = np.empty(100_000, object)
    for step in range(steps):
        table[step] = block()
        on_step()


def objects_in_matrix(steps: int, on_step: OnStep) -> None:
    """The same in two dimensions, as an attribute."""
    trainer = Trainer()
    trainer.table = np.empty((50_000, 2), object)
    for step in range(steps):
        trainer.table[step, step % 2] = (step, block())
        on_step()


def arrays_over_tensors(steps: int, on_step: OnStep) -> None:
    """Arrays that share the memory of tensors."""
    trainer = Trainer()
    predictions = []
    for _ in range(steps):
        predictions.append(trainer.output().detach().numpy())
        on_step()


def sparse_in_list(steps: int, on_step: OnStep) -> None:
    """Sparse tensors, whose values C++ alone holds."""
    frequencies = []
    places = torch.arange(1024).view(1, -1)
    for _ in range(steps):
        frequencies.append(torch.sparse_coo_tensor(places, torch.ones(1024, 4), (2048, 4)))
        on_step()


def half_evicted(steps: int, on_step: OnStep) -> None:
    """A memory that loses the oldest entry in every other step only."""
    memory: dict[int, Tensor] = {}
    for step in range(steps):
        memory[step] = block()
        if step % 2 == 0:
            memory.pop(step // 2, None)
        on_step()


def some_evicted(steps: int, on_step: OnStep) -> None:
    """A memory that loses an entry at random in two of three steps."""
    trainer = Trainer()
    chance = random.Random(0)
    for step in range(steps):
        trainer.cache[step] = block()
        if step % 3:
            trainer.cache.pop(chance.choice(list(trainer.cache)))
        on_step()


def once_withdrawn(steps: int, on_step: OnStep) -> None:
    """A cache that is cleared once, and never again."""
    trainer = Trainer()
    for step in range(steps):
        trainer.cache[step] = block()
        if step == 160:
            trainer.cache.clear()
        on_step()


def two_steps_a_pass(steps: int, on_step: OnStep) -> None:
    """A cache, and steps that end at one line or at another."""
    trainer = Trainer()
    for step in range(steps):
        trainer.cache[step] = block()
        if step // 40 % 2:
            on_step()
        else:
            on_step()


# Look-alikes


def cleared_cache(steps: int, on_step: OnStep) -> None:
    """A cache of keys and values that is cleared every 18 steps."""
    trainer = Trainer()
    for step in range(steps):
        if step % 18 == 0:
            trainer.cache.clear()
        trainer.cache[step] = block()
        on_step()


def cleared_keys(steps: int, on_step: OnStep) -> None:
    """A tensor that grows for 18 steps and begins anew."""
    decoder = Decoder()
    for step in range(steps):
        if step % 18 == 0:
            decoder.keys = None
        decoder.decode()
        on_step()


def longer_sequences(steps: int, on_step: OnStep) -> None:
    """Sequences that become longer, in a cycle."""
    net = network()
    for step in range(steps):
        batch = torch.ones(8 * (step % 60 + 1), 8, WIDTH)
        net(batch).square().mean().backward()
        net.zero_grad()
        on_step()


def truncated_backprop(steps: int, on_step: OnStep) -> None:
    """A state that is detached every 35 steps."""
    cell = torch.nn.GRUCell(WIDTH, WIDTH)
    state = torch.zeros(8, WIDTH)
    for step in range(steps):
        state = cell(torch.ones(8, WIDTH), state)
        if step % 35 == 34:
            state.sum().backward()
            cell.zero_grad()
            state = state.detach()
        on_step()


def replay_buffer(steps: int, on_step: OnStep) -> None:
    """A buffer that fills in 100 steps and replaces from then on."""
    buffer: list[Tensor] = []
    for step in range(steps):
        if len(buffer) < 100:
            buffer.append(block())
        else:
            buffer[step % 100] = block()
        on_step()


def bounded_deque(steps: int, on_step: OnStep) -> None:
    """A deque with ``maxlen`` that takes 400 steps to fill."""
    recent: collections.deque[Tensor] = collections.deque(maxlen=400)
    for _ in range(steps):
        recent.append(block())
        on_step()


def optimizer_warms_up(steps: int, on_step: OnStep) -> None:
    """Adam, whose state is made in the first step, beside parameters that thaw one by one."""
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(8)]
    net = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    for step in range(steps):
        for number, layer in enumerate(layers):
            layer.requires_grad_(number >= 7 - step // 8)
        train(net, optimizer)
        on_step()


def averaged_copy(steps: int, on_step: OnStep) -> None:
    """A copy of the model, made once in the midst, and averaged."""
    trainer = Trainer()
    average: torch.nn.Module | None = None
    for step in range(steps):
        trainer.output()
        if step == 70:
            average = copy.deepcopy(trainer.net)
        if average is not None:
            with torch.no_grad():
                pairs = zip(average.parameters(), trainer.net.parameters(), strict=True)
                for mean, now in pairs:
                    mean.lerp_(now, 0.01)
        on_step()


def evaluation(steps: int, on_step: OnStep) -> None:
    """Predictions that are collected in an evaluation every 40 steps."""
    trainer = Trainer()
    for step in range(steps):
        trainer.output()
        if step % 40 == 39:
            with torch.no_grad():
                predictions = [trainer.net(torch.ones(32, WIDTH)) for _ in range(20)]
            torch.cat(predictions)
        on_step()


def recent_results(steps: int, on_step: OnStep) -> None:
    """An LRU cache that fills in 64 steps, and replaces from then on."""

    @functools.lru_cache(maxsize=64)
    def result(key: int) -> Tensor:
        return block()

    for step in range(steps):
        result(step)
        on_step()


def prefetched(steps: int, on_step: OnStep) -> None:
    """A queue of batches that is filled faster than it is read, up to its size."""
    batches: queue.Queue[Tensor] = queue.Queue(maxsize=40)
    for step in range(steps):
        for _ in range(1 + step % 2):
            if not batches.full():
                batches.put(block())
        batches.get()
        on_step()


def accumulation(steps: int, on_step: OnStep) -> None:
    """Gradients that are cleared every 16 steps, with the losses of these kept till then."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    losses: list[Tensor] = []
    for step in range(steps):
        loss = net(torch.ones(32, WIDTH)).square().mean()
        loss.backward()
        losses.append(loss)
        if step % 16 == 15:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.clear()
        on_step()


def random_sizes(steps: int, on_step: OnStep) -> None:
    """Batches of all sizes, some kept a while."""
    chance = random.Random(0)
    kept: list[Tensor] = []
    for _ in range(steps):
        kept.append(block(chance.randint(1, 64)))
        if chance.random() < 0.05:
            del kept[: chance.randint(1, len(kept))]
        on_step()


def total_of_epoch(steps: int, on_step: OnStep) -> None:
    """A total of losses with their graphs that begins anew every 30 steps."""
    net = network()
    total = torch.zeros(())
    for step in range(steps):
        total = total + net(torch.ones(32, WIDTH)).square().mean()
        if step % 30 == 29:
            total.backward()
            total = torch.zeros(())
            net.zero_grad()
        on_step()


def total_of_numbers(steps: int, on_step: OnStep) -> None:
    """A total of losses without graphs, which `retain_graph` keeps until the next."""
    net = network()
    total = torch.zeros(())
    for _ in range(steps):
        loss = net(torch.ones(160, WIDTH)).square().mean()
        loss.backward(retain_graph=True)
        net.zero_grad()
        total = total + loss.detach()
        on_step()


def last_error(steps: int, on_step: OnStep) -> None:
    """The last exception only."""
    trainer = Trainer()
    for _ in range(steps):
        try:
            fail()
        except ValueError as error:
            trainer.errors[0] = error
        on_step()


def recent_errors(steps: int, on_step: OnStep) -> None:
    """The last 50 exceptions."""
    errors: list[Exception] = []
    for _ in range(steps):
        try:
            fail()
        except ValueError as error:
            errors.append(error)
        del errors[:-50]
        on_step()


def errors_of_epoch(steps: int, on_step: OnStep) -> None:
    """Exceptions that are reported every 40 steps."""
    errors: list[Exception] = []
    for step in range(steps):
        try:
            fail()
        except ValueError as error:
            errors.append(error)
        if step % 40 == 39:
            errors.clear()
        on_step()


def errors_without_traceback(steps: int, on_step: OnStep) -> None:
    """Exceptions that keep no frames."""
    errors: list[Exception] = []
    for _ in range(steps):
        try:
            fail()
        except ValueError as error:
            errors.append(error.with_traceback(None))
        on_step()


def ring_in_array(steps: int, on_step: OnStep) -> None:
    """An array of objects that is written round and round."""
    table = np.empty(80, object)
    for step in range(steps):
        table[step % len(table)] = block()
        on_step()


def array_of_epoch(steps: int, on_step: OnStep) -> None:
    """An array of objects that is made anew every 40 steps."""
    for step in range(steps):
        if step % 40 == 0:
            table = np.empty(40, object)
        table[step % 40] = block()
        on_step()


def cache_by_shape(steps: int, on_step: OnStep) -> None:
    """A tensor for each length, of which twelve come at random."""
    trainer = Trainer()
    chance = random.Random(0)
    for _ in range(steps):
        length = chance.randint(1, 12)
        trainer.cache.setdefault(length, block(length))
        on_step()


def teeth_of_all_lengths(steps: int, on_step: OnStep) -> None:
    """A cache that is cleared after as many steps as it happens."""
    trainer = Trainer()
    chance = random.Random(0)
    for step in range(steps):
        trainer.cache[step] = block()
        if chance.random() < 1 / 20 or len(trainer.cache) > 70:
            trainer.cache.clear()
        on_step()


def evicted_when_full(steps: int, on_step: OnStep) -> None:
    """A memory that loses its older half when it has 90 entries."""
    memory: dict[int, Tensor] = {}
    for step in range(steps):
        memory[step] = block()
        if len(memory) >= 90:
            for key in list(memory)[:45]:
                del memory[key]
        on_step()


def tables_of_warm_up(steps: int, on_step: OnStep) -> None:
    """Tables that are made in the first 40 steps, and stay."""
    table = np.empty(40, object)
    for step in range(steps):
        if step < 40:
            table[step] = block(64)
        on_step()


LEAKS: dict[Program, tuple[str, str]] = {
    losses_with_graph: ("kept-with-graph", "`losses`"),
    longer_past: ("tensor-grows", "`past`"),
    longer_keys: ("tensor-grows", ".keys"),
    slow_snapshots: ("container-grows", ".cache"),
    outputs_of_epochs: ("kept-with-graph", ".outputs"),
    clipped_gradients: ("gradients-never-cleared", "Linear"),
    cache_by_step: ("container-grows", ".cache"),
    deque_without_end: ("container-grows", ".window"),
    closures_in_hooks: ("container-grows", ".hooks"),
    outputs_beside_losses: ("container-grows", ".outputs"),
    arrays_in_module: ("container-grows", "`failures`"),
    history_of_class: ("container-grows", ".history"),
    samples_in_list: ("container-grows", "`hard`"),
    cloned_gradients: ("container-grows", "`grads`"),
    running_total: ("state-not-detached", "`total`"),
    hidden_state: ("state-not-detached", "`hidden`"),
    errors_in_list: ("exceptions-kept", "`errors`"),
    errors_by_step: ("exceptions-kept", ".errors"),
    tracebacks_in_list: ("exceptions-kept", "`seen`"),
    objects_in_array: ("container-grows", "`table`"),
    objects_in_matrix: ("container-grows", ".table"),
    arrays_over_tensors: ("container-grows", "`predictions`"),
    sparse_in_list: ("container-grows", "`frequencies`"),
    half_evicted: ("container-grows", "`memory`"),
    some_evicted: ("container-grows", ".cache"),
    once_withdrawn: ("container-grows", ".cache"),
    two_steps_a_pass: ("container-grows", ".cache"),
}
"""The pattern, and words of the owner that must be told first."""

STEPS = {"outputs_of_epochs": 500, "half_evicted": 300, "some_evicted": 400, "once_withdrawn": 500}
"""Programs that are told after more than 200 steps."""

LOOK_ALIKES: list[Program] = [
    cleared_cache,
    cleared_keys,
    longer_sequences,
    truncated_backprop,
    replay_buffer,
    bounded_deque,
    optimizer_warms_up,
    averaged_copy,
    evaluation,
    recent_results,
    prefetched,
    accumulation,
    random_sizes,
    total_of_epoch,
    total_of_numbers,
    last_error,
    recent_errors,
    errors_of_epoch,
    errors_without_traceback,
    ring_in_array,
    array_of_epoch,
    cache_by_shape,
    teeth_of_all_lengths,
    evicted_when_full,
    tables_of_warm_up,
]


def all_programs() -> Iterator[Program]:
    """Each program."""
    yield from LEAKS
    yield from LOOK_ALIKES
