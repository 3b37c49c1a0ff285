"""sentence-transformers: a tiny encoder is trained for a step and encodes token ids."""

import torch
from sentence_transformers import SentenceTransformer, losses
from sentence_transformers.models import Dense, Pooling

DISTRIBUTION = "sentence-transformers"
MADE_BY = ["sentence-transformers"]


def run() -> list[float]:
    pooling = Pooling(16, pooling_mode="mean")
    model = SentenceTransformer(modules=[pooling, Dense(16, 8)], device="cpu")
    loss = losses.MultipleNegativesRankingLoss(model)
    pairs = [
        {"token_embeddings": torch.randn(4, 5, 16), "attention_mask": torch.ones(4, 5)}
        for _ in range(2)
    ]
    total = loss(pairs, torch.zeros(4))
    total.backward()
    return [total.item()]
