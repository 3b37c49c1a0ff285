"""monai: a UNet is trained for a step and slides over an image."""

import torch
from monai.inferers import sliding_window_inference
from monai.losses import DiceLoss
from monai.networks.nets import UNet
from monai.transforms import Compose, RandFlip, ScaleIntensity

DISTRIBUTION = "monai"
MADE_BY = ["monai"]


def run() -> list[float]:
    model = UNet(2, 1, 2, channels=(4, 8, 16), strides=(2, 2), norm="batch")
    prepare = Compose([ScaleIntensity(), RandFlip(prob=0.5)]).set_random_state(0)
    image = prepare(torch.rand(1, 32, 32)).unsqueeze(0)
    loss = DiceLoss(softmax=True, to_onehot_y=True)(model(image), (image > 0.5).float())
    loss.backward()
    with torch.no_grad():
        whole = sliding_window_inference(torch.rand(1, 1, 64, 64), (32, 32), 2, model.eval())
    return [loss.item(), float(whole.sum())]
