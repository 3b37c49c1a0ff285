"""torch.jit.trace: the function that lists the sub-modules calls itself, and captures them."""

import gc

import torch


def traced() -> torch.jit.ScriptModule:
    network = torch.nn.Sequential(torch.nn.Linear(512, 512))
    return torch.jit.trace(network, torch.zeros(1, 512))


def leak() -> None:
    traced()


def remedied() -> None:
    module = traced()
    gc.collect()
    del module
