"""torch.export: the function that gathers the constants calls itself, and captures the module."""

import gc

import torch


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(torch.nn.Linear(512, 512), (torch.zeros(1, 512),))


def leak() -> None:
    exported()


def remedied() -> None:
    program = exported()
    gc.collect()
    del program
