"""kornia: images are augmented, filtered and matched, and a homography is fitted to them."""

import kornia
import torch

DISTRIBUTION = "kornia"


def run() -> list[float]:
    images = torch.rand(2, 3, 32, 32)
    augment = kornia.augmentation.AugmentationSequential(
        kornia.augmentation.RandomAffine(10.0, p=1.0),
        kornia.augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0),
        data_keys=["input", "mask"],
    )
    moved, mask = augment(images, images[:, :1])
    edges = kornia.filters.Canny()(moved)[0]
    points = torch.rand(1, 8, 2)
    matrix = kornia.geometry.find_homography_dlt(points, points + 0.1)
    return [float(mask.sum()), float(edges.sum()), float(matrix.sum())]
