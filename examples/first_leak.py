"""A trainer whose callback captures it: each one stays in memory until a garbage collection."""

import gc

import torch

import cyclescope

cyclescope.warn_tensor_cycles(report_dir="leaks", devices="any")
gc.disable()  # as many training loops do, to collect between steps


class Trainer:
    def __init__(self, batch: torch.Tensor) -> None:
        self.batch = batch
        self.on_step = lambda loss: loss / len(self.batch)

    def step(self) -> torch.Tensor:
        return self.on_step(self.batch.sum())


for _ in range(10):
    Trainer(torch.randn(1024, 1024)).step()
gc.collect()
