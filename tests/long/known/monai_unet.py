"""monai: the function inside `UNet` that builds its blocks calls itself, and captures the UNet."""

import gc

from monai.networks.nets import UNet


def leak() -> None:
    UNet(2, 1, 2, channels=(64, 128, 256), strides=(2, 2))


def remedied() -> None:
    model = UNet(2, 1, 2, channels=(64, 128, 256), strides=(2, 2))
    gc.collect()
    del model
