"""What a watch costs a training step on a GPU.

Trains a small transformer in bfloat16, with a record kept of each step, as a data loader and
a logger do, so that a young collection comes with every step or two. Times steps with no detector,
with cyclescope's watch and with PyTorch's own detector (``torch.utils.viz._cycles``), in
interleaved rounds of one run. Prints the median step of each and its ratio to the bare step.

    python benches/gpu_step.py [--rounds 5] [--steps 40] [--batch 16] [--records 300]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

import cyclescope

Step = Callable[[], None]


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


def milliseconds(step: Step, count: int) -> list[float]:
    """The wall-clock time of each of ``count`` steps, the GPU's work included."""
    times = []
    torch.cuda.synchronize()
    for _ in range(count):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return times


@contextmanager
def nothing() -> Iterator[None]:
    yield


@contextmanager
def cyclescope_watch() -> Iterator[None]:
    with cyclescope.observe_tensor_cycles(lambda report: None):
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


def collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="steps a round (default: 40)")
    parser.add_argument("--slow-steps", type=int, default=6, help="the same for PyTorch's detector")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--records", type=int, default=300, help="records kept of each step")
    args = parser.parse_args()

    step = training_step(args.batch, args.records)
    milliseconds(step, 20)
    detectors = {
        "no detector": (nothing, args.steps),
        "cyclescope": (cyclescope_watch, args.steps),
        "torch.utils.viz._cycles": (pytorch_detector, args.slow_steps),
    }
    times: dict[str, list[float]] = {name: [] for name in detectors}
    seen = dict.fromkeys(detectors, 0)
    for _ in range(args.rounds):
        for name, (detector, steps) in detectors.items():
            with detector():
                before = collections()
                times[name] += milliseconds(step, steps)
                seen[name] += collections() - before
            milliseconds(step, 3)

    bare = statistics.median(times["no detector"])
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, batch {args.batch}")
    print(f"{'':24} {'median':>9} {'mean':>9} {'longest':>9} {'steps':>6} {'gc':>5} {'ratio':>7}")
    for name, all_times in times.items():
        median = statistics.median(all_times)
        print(
            f"{name:24} {median:6.2f} ms {statistics.fmean(all_times):6.2f} ms "
            f"{max(all_times):6.2f} ms {len(all_times):6} {seen[name]:5} {median / bare:6.2f}x"
        )


if __name__ == "__main__":
    main()
