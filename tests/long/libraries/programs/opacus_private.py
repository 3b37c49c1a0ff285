"""opacus: a network is trained for an epoch with differential privacy."""

import torch
from opacus import PrivacyEngine

DISTRIBUTION = "opacus"
MADE_BY = ["opacus"]


def run() -> list[float]:
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.utils.data.TensorDataset(torch.randn(16, 16), torch.arange(16) % 2)
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    losses = []
    for features, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
