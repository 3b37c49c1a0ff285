"""e3nn: an equivariant network of tensor products is trained for a step."""

import torch
from e3nn import nn, o3

DISTRIBUTION = "e3nn"


def run() -> list[float]:
    inner = o3.Irreps("4x0e + 2x1o")
    product = o3.FullyConnectedTensorProduct(inner, "1x0e + 1x1o", inner)
    gate = nn.Activation("4x0e", [torch.tanh])
    edges = o3.spherical_harmonics("1x0e + 1x1o", torch.randn(8, 3), normalize=True)
    output = product(inner.randn(8, -1), edges)
    total = gate(output[:, :4]).sum() + output.square().sum()
    total.backward()
    return [total.item()]
