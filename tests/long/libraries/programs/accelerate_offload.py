"""accelerate: a network is prepared and trained for a step, and another one offloaded."""

import accelerate
import torch

DISTRIBUTION = "accelerate"
MADE_BY = ["accelerate"]


def run() -> list[float]:
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss = model(torch.randn(4, 16)).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
    other = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 1))
    offloaded = accelerate.cpu_offload(other, execution_device=torch.device("cpu"))
    with torch.no_grad():
        return [loss.item(), float(offloaded(torch.randn(4, 16)).sum())]
