"""lightning: a Trainer fits a module for two epochs and logs, with metrics of torchmetrics."""

import tempfile

import lightning
import torch

DISTRIBUTION = "lightning"
MADE_BY = ["lightning", "torchmetrics"]


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = self.layer(batch[0]).pow(2).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def run() -> list[float]:
    rows = torch.utils.data.TensorDataset(torch.randn(8, 16))
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    model = Regression()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, loader)
    return [float(trainer.callback_metrics["loss"]), float(model.layer.weight.sum())]
