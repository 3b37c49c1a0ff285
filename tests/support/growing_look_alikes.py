"""Programs that only look like those of ``growing``: nothing of them may remain told at the end.

Each takes a number of steps and what to call at the end of each.
"""

from __future__ import annotations

import collections
import copy
import functools
import queue
import random

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
    train,
)


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


def experts_get_their_states(steps: int, on_step: OnStep) -> None:
    """A layer is first trained, and has a state from then on, when a sample comes to it."""
    chance = random.Random(0)
    experts = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(120))
    optimizer = torch.optim.Adam(experts.parameters(), lr=1e-4)
    for _ in range(steps):
        train(chance.choice(list(experts)), optimizer)
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


def latest_frames(steps: int, on_step: OnStep) -> None:
    """A queue with a limit, of which the oldest is dropped once it is full."""
    frames: queue.Queue[Tensor] = queue.Queue(maxsize=60)
    for _ in range(steps):
        if frames.full():
            frames.get_nowait()
        frames.put_nowait(block())
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


LOOK_ALIKES: list[Program] = [
    cleared_cache,
    cleared_keys,
    longer_sequences,
    truncated_backprop,
    replay_buffer,
    bounded_deque,
    experts_get_their_states,
    optimizer_warms_up,
    averaged_copy,
    evaluation,
    recent_results,
    prefetched,
    latest_frames,
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
