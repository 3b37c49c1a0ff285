"""accelerate: `forward` of a module with a hook is a partial of the module."""

import accelerate
import torch
from accelerate.hooks import remove_hook_from_module


def offloaded() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 512))
    return accelerate.cpu_offload(model, execution_device=torch.device("cpu"))


def leak() -> None:
    offloaded()


def remedied() -> None:
    model = offloaded()
    remove_hook_from_module(model, recurse=True)
    for module in model.modules():
        vars(module).pop("forward", None)
