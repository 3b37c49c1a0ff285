"""gpytorch: every module registers one of its own bound methods as a hook on itself."""

import gpytorch
import torch


def leak() -> None:
    gpytorch.kernels.RBFKernel(ard_num_dims=262144)
    torch.manual_seed(0)
