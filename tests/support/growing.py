"""Programs whose memory grows with the number of steps.

Each takes a number of steps and what to call at the end of each. ``LEAKS`` says which owner must
be told of a program.
"""

from __future__ import annotations

import dataclasses
import gc
import random
import sys
from collections.abc import Callable

import numpy as np
import torch

from support.growing_parts import (
    WIDTH,
    Decoder,
    OnStep,
    Program,
    Tensor,
    Trainer,
    block,
    fail,
    network,
)

EPOCH = 50


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


class Batch:
    def __init__(self) -> None:
        self.data = block()
        self.transform = lambda: self.data * 2


def waiting_garbage(steps: int, on_step: OnStep) -> None:
    """Cycles that the garbage collector would free, but it is disabled."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(steps):
            Batch()
            on_step()
    finally:
        if was_enabled:
            gc.enable()
        gc.collect()


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
