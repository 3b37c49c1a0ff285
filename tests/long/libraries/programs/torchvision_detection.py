"""torchvision: a small Faster R-CNN is trained for a step, and a ResNet gives its features."""

import torch
from torchvision.models import mobilenet_v3_small, resnet18
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.models.feature_extraction import create_feature_extractor

DISTRIBUTION = "torchvision"
MADE_BY = ["torch"]


def run() -> list[float]:
    backbone = mobilenet_v3_small(weights=None).features
    backbone.out_channels = 576
    anchors = AnchorGenerator(sizes=((16, 32),), aspect_ratios=((1.0,),))
    model = FasterRCNN(
        backbone,
        num_classes=2,
        rpn_anchor_generator=anchors,
        min_size=64,
        max_size=64,
        box_head=torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(1024)),
    )
    box = {"boxes": torch.tensor([[4.0, 4.0, 40.0, 40.0]]), "labels": torch.tensor([1])}
    losses = model([torch.rand(3, 64, 64)], [box])
    sum(losses.values()).backward()
    extractor = create_feature_extractor(resnet18(weights=None), {"layer1": "low"})
    features = extractor(torch.rand(1, 3, 32, 32))["low"]
    return [float(sum(losses.values())), float(features.sum())]
