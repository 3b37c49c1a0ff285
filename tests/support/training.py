"""Tiny models for Lightning and Transformers, which leak in each step if asked.

Both are imported when they are used, so that the heap of tests that need neither stays small.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

STEPS = 6


class Metrics:
    """Leaks: it knows the function that knows it."""

    def __init__(self, activations: torch.Tensor) -> None:
        self.activations = activations.detach().clone()
        self.summary = lambda: self.activations.mean()


def lightning_module(*, leaky: bool) -> Any:
    from lightning.pytorch import LightningModule

    class TinyModule(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 64)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            out = self.layer(batch)
            if leaky:
                Metrics(out)
            loss: torch.Tensor = out.square().mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return TinyModule()


class TinyModel(torch.nn.Module):
    def __init__(self, *, leaky: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
        self.leaky = leaky

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        out = self.layer(x)
        if self.leaky:
            Metrics(out)
        return {"loss": out.square().mean()}


def transformers_trainer(folder: Path, *, leaky: bool, report_to: str = "tensorboard") -> Any:
    from transformers import Trainer as HfTrainer
    from transformers import TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        report_to=[report_to],
        logging_steps=1000,
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    rows = [{"x": torch.randn(64), "labels": torch.zeros(1)} for _ in range(STEPS * 4)]
    return HfTrainer(model=TinyModel(leaky=leaky), args=arguments, train_dataset=rows)
