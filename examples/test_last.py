"""A leak that one test makes and a later one drops: it is found when the module ends."""

import torch

trainers = []


class Trainer:
    def __init__(self):
        self.activations = torch.zeros(512, 512)
        self.on_step = lambda: self.activations.sum()


def test_makes():
    trainers.append(Trainer())


def test_last():
    trainers.clear()
