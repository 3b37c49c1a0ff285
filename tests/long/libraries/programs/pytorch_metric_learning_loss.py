"""pytorch-metric-learning: embeddings are trained for a step with mined triplets, and stored."""

import torch
from pytorch_metric_learning import distances, losses, miners, reducers

DISTRIBUTION = "pytorch-metric-learning"


def run() -> list[float]:
    network = torch.nn.Linear(16, 8)
    inputs, labels = torch.randn(32, 16), torch.arange(32) % 4
    distance = distances.CosineSimilarity()
    loss = losses.TripletMarginLoss(distance=distance, reducer=reducers.ThresholdReducer(low=0))
    miner = miners.MultiSimilarityMiner()
    memory = losses.CrossBatchMemory(losses.ContrastiveLoss(), 8, memory_size=64)
    embeddings = network(inputs)
    total = loss(embeddings, labels, miner(embeddings, labels)) + memory(embeddings, labels)
    total.backward()
    return [total.item()]
