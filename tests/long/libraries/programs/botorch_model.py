"""botorch: a Gaussian process is fitted and its expected improvement optimized."""

import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood

DISTRIBUTION = "botorch"
MADE_BY = ["gpytorch"]


def run() -> list[float]:
    inputs = torch.rand(8, 2, dtype=torch.double)
    model = SingleTaskGP(inputs, inputs.sin().sum(1, keepdim=True))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    improvement = qLogExpectedImprovement(model, best_f=1.0)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
    point, value = optimize_acqf(improvement, bounds, q=1, num_restarts=2, raw_samples=8)
    return [float(point.sum()), float(value)]
