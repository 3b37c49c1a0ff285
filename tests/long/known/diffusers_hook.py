"""diffusers: a module with a hook stores a partial of itself, and its registry of hooks."""

import torch
from diffusers.hooks import apply_layerwise_casting


def cast() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Linear(512, 512))
    types = {"storage_dtype": torch.float16, "compute_dtype": torch.float32}
    apply_layerwise_casting(model, skip_modules_pattern=None, **types)
    return model


def leak() -> None:
    cast()


def remedied() -> None:
    for module in cast().modules():
        if hasattr(module, "_diffusers_hook"):
            for reference in module._diffusers_hook._fn_refs:
                reference.forward = None
            del module._diffusers_hook, module.forward
