"""torch.ao.quantization: the settings of a module get a function that captures the module."""

import gc

import torch
from torch.ao.quantization import quantize_dynamic


def quantized() -> torch.nn.Module:
    return quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(512, 512)), {torch.nn.Linear})


def leak() -> None:
    quantized()


def remedied() -> None:
    module = quantized()
    gc.collect()
    del module
