"""pyro: the adapter of an HMC or NUTS kernel has a bound method of the kernel."""

import pyro
import torch
from pyro.infer import MCMC, NUTS


def model() -> None:
    pyro.sample("x", pyro.distributions.Normal(torch.zeros(2**14), 1.0).to_event(1))


def sampled() -> NUTS:
    kernel = NUTS(model, max_tree_depth=2)
    MCMC(kernel, num_samples=2, warmup_steps=2, disable_progbar=True).run()
    return kernel


def leak() -> None:
    sampled()


def remedied() -> None:
    sampled()._adapter._find_reasonable_step_size = None
