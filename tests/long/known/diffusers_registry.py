"""diffusers: a module and its registry of hooks, which has no hook, refer to each other."""

import torch
from diffusers.hooks import HookRegistry


def registered() -> torch.nn.Module:
    module = torch.nn.Linear(512, 512)
    HookRegistry.check_if_exists_or_initialize(module)
    return module


def leak() -> None:
    registered()


def remedied() -> None:
    del registered()._diffusers_hook
