"""What a watch costs a training step on a GPU.

Trains a small transformer in bfloat16, with a record kept of each step, as a data loader and
a logger do, so that a young collection comes with every step or two. Times steps with no detector,
with cyclescope's watch and with PyTorch's own detector (``torch.utils.viz._cycles``): of training
as it is, with 20 reference cycles a step that hold no tensor, and with 20 that each hold one.

A step's time drifts with the machine's clocks, by more than a watch costs. So the detectors take
turns in short rounds, and each is compared with the bare steps of the same round: printed are the
median of these ratios and their quartiles. "processor" is the same ratio of the time for which the
training thread had a processor, which other programs on the machine disturb less. A step takes
longer by as much only if the GPU waits for the thread.

    python benches/gpu_step.py [--rounds 100] [--steps 10] [--batch 16] [--records 300]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import cyclescope

Step = Callable[[], None]
CYCLES = 20
SETTLING = 3
"""Steps not timed after a detector has begun or ended."""


def training_step(batch: int, records: int) -> Step:
    """One step of a transformer of six layers: forward, backward, AdamW, and some book-keeping."""
    torch.manual_seed(0)
    vocabulary, width, length = 8192, 512, 512
    layer = nn.TransformerEncoderLayer(
        width, nhead=8, dim_feedforward=2048, dropout=0.0, batch_first=True, norm_first=True
    )
    model: Any = nn.Sequential(
        nn.Embedding(vocabulary, width),
        nn.TransformerEncoder(layer, num_layers=6, enable_nested_tensor=False),
        nn.Linear(width, vocabulary),
    ).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(vocabulary, (batch, length + 1), device="cuda")

    history: list[list[dict[str, list[int]]]] = []

    def step() -> None:
        history.append([{"tokens": [n]} for n in range(records)])
        logits = model(tokens[:, :-1])
        loss: Any = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class Owner:
    """An instance that keeps a closure which captures it: the cycle that programs have most."""

    def __init__(self, value: object) -> None:
        self.value = value
        self.callback = lambda: self.value


def with_cycles(step: Step, value: Callable[[], object]) -> Step:
    def step_with_cycles() -> None:
        for _ in range(CYCLES):
            Owner(value())
        step()

    return step_with_cycles


@contextmanager
def cyclescope_watch() -> Iterator[None]:
    # As `warn_tensor_cycles` looks on, but it says nothing.
    with cyclescope.Watch(["cuda"], lambda report: None, once_per_leak=True):
        yield


@contextmanager
def pytorch_detector() -> Iterator[None]:
    from torch.utils.viz import _cycles

    viz: Any = _cycles
    remove = viz.observe_tensor_cycles(lambda html: None)
    try:
        yield
    finally:
        remove()
        gc.set_debug(0)
        torch.cuda.memory._record_memory_history(enabled=None)


@dataclass
class Detector:
    """A way to watch, and the times of its steps, round by round, in milliseconds."""

    watch: Callable[[], AbstractContextManager[None]]
    steps: int
    rounds: int
    times: list[list[float]] = field(default_factory=list)
    processor: list[list[float]] = field(default_factory=list)
    collections: int = 0

    def run(self, step: Step) -> None:
        with self.watch():
            timed(step, SETTLING)
            before = collections()
            times, processor = timed(step, self.steps)
            self.times.append(times)
            self.processor.append(processor)
            self.collections += collections() - before
        timed(step, SETTLING)


def quartiles(ours: list[list[float]], theirs: list[list[float]]) -> tuple[float, float, float]:
    """The quartiles of the ratios of times, each within its round."""
    ratios = [
        statistics.median(mine) / statistics.median(other)
        for mine, other in zip(ours, theirs, strict=False)
    ]
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, median, high


def timed(step: Step, count: int) -> tuple[list[float], list[float]]:
    """Of each of ``count`` steps: wall-clock time, the GPU's work included, and processor time."""
    times, processor = [], []
    torch.cuda.synchronize()
    for _ in range(count):
        start, began = time.perf_counter(), time.thread_time()
        step()
        # The thread would spin until the GPU is done.
        used = time.thread_time() - began
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
        processor.append(used * 1e3)
    return times, processor


def collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def compare(step: Step, rounds: int, steps: int, slow_rounds: int) -> dict[str, Detector]:
    """The detectors in turns, the first two in changing order."""
    bare = Detector(nullcontext, steps, rounds)
    ours = Detector(cyclescope_watch, steps, rounds)
    theirs = Detector(pytorch_detector, max(steps // 3, 1), slow_rounds)
    for turn in range(rounds):
        for detector in (bare, ours)[:: 1 if turn % 2 else -1]:
            detector.run(step)
        if turn < theirs.rounds:
            theirs.run(step)
    found = {"no detector": bare, "cyclescope": ours, "torch.utils.viz._cycles": theirs}
    return {name: detector for name, detector in found.items() if detector.times}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10, help="steps a round (default: 10)")
    parser.add_argument("--slow-rounds", type=int, default=2, help="PyTorch's at least 2, or 0")
    parser.add_argument("--only", default="", help="scenarios whose name ends with this")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--records", type=int, default=300, help="records kept of each step")
    args = parser.parse_args()

    step = training_step(args.batch, args.records)
    scenarios = {
        "training": step,
        f"training, {CYCLES} cycles a step": with_cycles(step, lambda: None),
        f"training, {CYCLES} cycles a step that hold a tensor": with_cycles(
            step, lambda: torch.empty(1024, device="cuda")
        ),
    }
    timed(step, 2 * args.steps)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, batch {args.batch}")
    for scenario, its_step in scenarios.items():
        if not scenario.endswith(args.only):
            continue
        detectors = compare(its_step, args.rounds, args.steps, args.slow_rounds)
        bare = detectors["no detector"]
        print(f"\n{scenario}")
        print(
            f"{'':24} {'median':>9} {'longest':>9} {'steps':>6} {'gc':>5}  ratio (quartiles)"
            "         processor"
        )
        for name, detector in detectors.items():
            all_times = [time for times in detector.times for time in times]
            low, ratio, high = quartiles(detector.times, bare.times)
            of_processor = quartiles(detector.processor, bare.processor)[1]
            print(
                f"{name:24} {statistics.median(all_times):6.2f} ms {max(all_times):6.1f} ms "
                f"{len(all_times):6} {detector.collections:5}  "
                f"{ratio:.3f} ({low:.3f} to {high:.3f})  {of_processor:.3f}"
            )


if __name__ == "__main__":
    main()
