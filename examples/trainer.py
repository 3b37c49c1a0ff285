"""Tries three learning rates on a small network, each with a trainer of its own.

A trainer should be gone once its loss is printed. Three mistakes keep the trainers, and reads that
failed, in memory; docs/fix-a-trainer.md finds and fixes these.
"""

import gc

import torch
import torch._dynamo  # which the first optimizer would import, and then keep its callers' variables
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

gc.disable()  # collects between trainers, not in the middle of a step


class Storage:
    """Batches from a server that is sometimes busy."""

    def __init__(self):
        self.reads = 0

    def read(self):
        self.reads += 1
        batch = torch.empty(512, 512)
        if self.reads % 5 == 0:
            raise TimeoutError("the server is busy")
        return batch.normal_()


def with_retries(read, attempts=3):
    failure = None
    for _ in range(attempts):
        try:
            return read()
        except TimeoutError as error:
            failure = error
    raise failure


class Trainer:
    def __init__(self, rate, warmup=4):
        self.warmup = warmup
        self.losses = []
        self.model = nn.Sequential(nn.Linear(512, 256), nn.Tanh(), nn.Linear(256, 512))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate)
        self.scheduler = LambdaLR(
            self.optimizer,
            lambda step: min(1.0, (step + 1) / self.warmup),
        )
        self.on_step = lambda loss: self.losses.append(loss.item())

    def fit(self, batches):
        for batch in batches:
            loss = (self.model(batch) - batch).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.on_step(loss)
        return self.losses[-1]


def main():
    torch.manual_seed(0)
    storage = Storage()
    batches = [with_retries(storage.read) for _ in range(12)]
    for rate in (0.1, 1.0, 10.0):
        print(f"rate {rate}: loss {Trainer(rate).fit(batches):.4f}")
        gc.collect()


main()
