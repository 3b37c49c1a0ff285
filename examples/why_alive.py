"""A tensor that should be gone, and the two references that keep it alive."""

import torch

import cyclescope


class Trainer:
    best = None


trainer = Trainer()
history = []
for _ in range(20):
    history.append(torch.rand(()))
trainer.best = {"loss": history[17]}

print(cyclescope.why_alive(history[17]))
