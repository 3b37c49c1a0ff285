"""speechbrain: a Brain fits a small network on filter banks of noise."""

import speechbrain
import torch
from speechbrain.lobes.features import Fbank
from speechbrain.lobes.models.Xvector import Xvector

DISTRIBUTION = "speechbrain"


class Recognizer(speechbrain.Brain):
    def compute_forward(self, batch: list[torch.Tensor], stage: object) -> torch.Tensor:
        return self.modules.network(self.hparams.features(batch[0]))

    def compute_objectives(
        self, predictions: torch.Tensor, batch: list[torch.Tensor], stage: object
    ) -> torch.Tensor:
        return predictions.pow(2).mean()


def run() -> list[float]:
    network = Xvector(
        in_channels=40,
        tdnn_blocks=1,
        tdnn_channels=[8],
        tdnn_kernel_sizes=[3],
        tdnn_dilations=[1],
        lin_neurons=8,
    )
    brain = Recognizer(
        {"network": network},
        opt_class=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        hparams={"features": Fbank(n_mels=40)},
        run_opts={"device": "cpu"},
    )
    rows = torch.utils.data.TensorDataset(torch.randn(4, 8000))
    brain.fit(range(1), torch.utils.data.DataLoader(rows, batch_size=2), progressbar=False)
    return [brain.avg_train_loss, float(sum(p.sum().item() for p in network.parameters()))]
