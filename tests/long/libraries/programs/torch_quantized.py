"""torch.ao.quantization: a network with an LSTM is quantized dynamically and run."""

import torch

DISTRIBUTION = "torch"
MADE_BY = ["torch"]


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.last = torch.nn.LSTM(8, 8), torch.nn.Linear(8, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.last(self.recurrent(rows)[0])


def run() -> list[float]:
    kinds = {torch.nn.Linear, torch.nn.LSTM}
    quantized = torch.ao.quantization.quantize_dynamic(Network(), kinds, dtype=torch.qint8)
    return [float(quantized(torch.randn(4, 2, 8)).sum())]
