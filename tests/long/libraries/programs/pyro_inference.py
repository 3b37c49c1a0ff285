"""pyro: a regression is fitted by stochastic variational inference and by NUTS."""

import pyro
import torch
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal

DISTRIBUTION = "pyro-ppl"
MADE_BY = ["pyro-ppl"]


def model(x: torch.Tensor, y: torch.Tensor) -> None:
    slope = pyro.sample("slope", pyro.distributions.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", pyro.distributions.Normal(slope * x, 0.1), obs=y)


def run() -> list[float]:
    pyro.clear_param_store()
    x = torch.linspace(0, 1, 16)
    inference = SVI(
        model, AutoDiagonalNormal(model), pyro.optim.Adam({"lr": 0.01}), loss=Trace_ELBO()
    )
    losses = [inference.step(x, 2 * x) for _ in range(2)]
    chain = MCMC(NUTS(model), num_samples=4, warmup_steps=4, disable_progbar=True)
    chain.run(x, 2 * x)
    return [*losses, float(chain.get_samples()["slope"].sum())]
