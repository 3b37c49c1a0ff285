"""captum: a network's output is attributed by four methods."""

import torch
from captum.attr import DeepLift, GradientShap, IntegratedGradients, LayerGradCam

DISTRIBUTION = "captum"


def run() -> list[float]:
    convolution = torch.nn.Conv2d(1, 4, 3)
    model = torch.nn.Sequential(
        convolution, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2)
    )
    image = torch.rand(1, 1, 8, 8, requires_grad=True)
    parts = [
        IntegratedGradients(model).attribute(image, target=0, n_steps=4),
        DeepLift(model).attribute(image, target=0),
        GradientShap(model).attribute(image, baselines=torch.zeros(2, 1, 8, 8), target=0),
        LayerGradCam(model, convolution).attribute(image, target=0),
    ]
    return [float(part.sum()) for part in parts]
