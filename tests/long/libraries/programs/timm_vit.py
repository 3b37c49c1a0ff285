"""timm: a tiny vision transformer is trained with timm's optimizer, scheduler and EMA."""

import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3

DISTRIBUTION = "timm"


def run() -> list[float]:
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=4, **sizes)
    average = ModelEmaV3(model)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-2)
    scheduler = CosineLRScheduler(optimizer, t_initial=2)
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([0, 1])
    losses = []
    for step in range(2):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        scheduler.step(step)
        average.update(model)
        losses.append(loss.item())
    return [*losses, float(average(images).sum())]
