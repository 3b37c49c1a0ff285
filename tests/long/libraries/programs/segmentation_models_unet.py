"""segmentation-models-pytorch: a small Unet is trained for a step and gives its metrics."""

import segmentation_models_pytorch as smp
import torch

DISTRIBUTION = "segmentation-models-pytorch"


def run() -> list[float]:
    model = smp.Unet("resnet18", encoder_weights=None, classes=2)
    images, masks = torch.rand(2, 3, 64, 64), torch.randint(0, 2, (2, 2, 64, 64))
    loss = smp.losses.DiceLoss("multilabel")(model(images), masks.float())
    loss.backward()
    stats = smp.metrics.get_stats(model(images).sigmoid(), masks, mode="multilabel", threshold=0.5)
    return [loss.item(), float(smp.metrics.iou_score(*stats, reduction="micro"))]
