"""What a watch costs a training loop in JAX, and whether it names the leak that is planted in one.

Trains a small perceptron with plain JAX and keeps a record of each step, so that young collections
come. Loops with and without a watch take turns; printed are the median of the ratios of the two in
each round, and the quartiles.

    python benches/jax_step.py [--rounds 20] [--steps 200]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp

import cyclescope

WIDTHS = (512, 2048, 2048, 512)
RATE = 1e-3


class Trainer:
    """Keeps its parameters and a record of each step; if it `leaks`, its callback captures it."""

    def __init__(self, *, leaks: bool = False) -> None:
        keys = jax.random.split(jax.random.key(0), len(WIDTHS))
        shapes = itertools.pairwise(WIDTHS)
        self.weights = [
            jax.random.normal(key, shape) * 0.02 for key, shape in zip(keys, shapes, strict=False)
        ]
        self.batch = jax.random.normal(keys[-1], (256, WIDTHS[0]))
        self.records: list[dict[str, list[int]]] = []
        if leaks:
            self.on_step: Callable[[], Any] = lambda: self.batch

    def step(self, number: int) -> None:
        self.records.extend({"tokens": [number, item]} for item in range(200))
        self.weights = update(self.weights, self.batch)


def updated(weights: list[jax.Array], batch: jax.Array) -> list[jax.Array]:
    """One step of gradient descent on an autoencoder."""

    def loss(weights: list[jax.Array]) -> jax.Array:
        value = batch
        for weight in weights:
            value = jnp.tanh(value @ weight)
        return jnp.mean((value - batch) ** 2)

    gradients = jax.grad(loss)(weights)
    return [weight - RATE * gradient for weight, gradient in zip(weights, gradients, strict=True)]


update: Any = jax.jit(updated)


def timed(steps: int, *, watched: bool) -> float:
    """Seconds that a loop takes."""
    trainer = Trainer()
    watch = cyclescope.Watch(["any"], lambda report: None, once_per_leak=True)
    with watch if watched else nullcontext():
        trainer.step(0)
        jax.block_until_ready(trainer.weights)
        started = time.perf_counter()
        for number in range(steps):
            trainer.step(number)
        jax.block_until_ready(trainer.weights)
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    ratios = []
    for number in range(options.rounds):
        # Each goes first in turn.
        order = (True, False) if number % 2 else (False, True)
        times = {watched: timed(options.steps, watched=watched) for watched in order}
        ratios.append(times[True] / times[False])
    low, median, high = statistics.quantiles(ratios, n=4)
    print(f"{options.steps} steps on {jax.devices()[0]}: {median:.3f} ({low:.3f} to {high:.3f})")

    def leak() -> None:
        trainer = Trainer(leaks=True)
        for number in range(options.steps):
            trainer.step(number)

    leak()
    print(cyclescope.find_tensor_cycles(devices="any"))


if __name__ == "__main__":
    main()
