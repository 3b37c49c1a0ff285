"""open_clip_torch: a tiny CLIP with random weights is trained for a step on random tokens."""

import open_clip
import torch

DISTRIBUTION = "open_clip_torch"


def run() -> list[float]:
    vision = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 16, "head_width": 32}
    text = {"context_length": 8, "vocab_size": 100, "width": 32, "heads": 2, "layers": 2}
    model = open_clip.CLIP(embed_dim=16, vision_cfg=vision, text_cfg=text)
    images, tokens = torch.rand(4, 3, 32, 32), torch.randint(0, 100, (4, 8))
    features = model(images, tokens)
    loss = open_clip.ClipLoss()(features[0], features[1], features[2])
    loss.backward()
    return [loss.item()]
