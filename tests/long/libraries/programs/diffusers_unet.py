"""diffusers: a tiny UNet is trained for a step, then denoises with its layers cast to float16."""

import torch
from diffusers import DDPMScheduler, UNet2DModel

DISTRIBUTION = "diffusers"
MADE_BY = ["diffusers"]


def run() -> list[float]:
    model = UNet2DModel(
        sample_size=16,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    scheduler = DDPMScheduler(num_train_timesteps=4)
    noise = torch.randn(2, 1, 16, 16)
    steps = torch.tensor([1, 2])
    noisy = scheduler.add_noise(torch.randn(2, 1, 16, 16), noise, steps)
    loss = torch.nn.functional.mse_loss(model(noisy, steps).sample, noise)
    loss.backward()
    model.enable_layerwise_casting(storage_dtype=torch.float16, compute_dtype=torch.float32)
    with torch.no_grad():
        for step in (3, 2, 1, 0):
            noisy = scheduler.step(model(noisy, step).sample, step, noisy).prev_sample
    return [loss.item(), float(noisy.sum())]
