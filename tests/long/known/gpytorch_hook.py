"""gpytorch: every module registers one of its own bound methods as a hook on itself."""

import gpytorch


def leak() -> None:
    gpytorch.kernels.RBFKernel(ard_num_dims=2**18)


def remedied() -> None:
    kernel = gpytorch.kernels.RBFKernel(ard_num_dims=2**18)
    for module in kernel.modules():
        module._load_state_dict_pre_hooks.clear()
