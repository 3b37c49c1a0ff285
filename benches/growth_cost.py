"""What a sample of the growth monitor takes, as a ratio to ``gc.collect()`` on the same heap.

python benches/growth_cost.py [OBJECTS] [TENSORS]
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable

import torch

import cyclescope

ROUNDS = 7


def median_ms(action: Callable[[], object]) -> float:
    """The median time of an action, on this thread's processor time."""
    times = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        action()
        times.append((time.thread_time() - started) * 1e3)
    return statistics.median(times)


def main() -> None:
    objects, tensors = (
        int(each) for each in (sys.argv[1:3] + ["1000000", "1000"][len(sys.argv) - 1 :])
    )
    heap = [{"index": index, "next": [index]} for index in range(objects // 2)]
    alive = [torch.zeros(16) for _ in range(tensors)]
    net = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(200)])
    loss = net(torch.ones(4, 8)).sum()
    tracked = len(gc.get_objects())
    collect = median_ms(gc.collect)
    with cyclescope.LeakMonitor(every=1, devices="any", max_share=float("inf")) as monitor:
        sample = median_ms(monitor.sample)
        monitor.every = 10**9
        monitor._next = 10**9
        step = median_ms(lambda: [monitor.step() for _ in range(1_000)])
    print(f"{tracked:,} tracked objects, {len(alive):,} tensors, a graph of 600 nodes")
    print(f"gc.collect()           {collect:8.1f} ms")
    print(f"a sample               {sample:8.1f} ms  ({sample / collect:.2f} x gc.collect())")
    print(f"a step without sample  {step:8.2f} us")
    del heap, loss


if __name__ == "__main__":
    main()
