"""torch_geometric: two graph convolutions are trained for a step, and explained."""

import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GCNConv

DISTRIBUTION = "torch_geometric"
MADE_BY = ["torch_geometric"]


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(8, 16), GCNConv(16, 2)

    def forward(self, features: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(features, edges).relu(), edges)


def run() -> list[float]:
    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    graph = Data(x=torch.randn(5, 8), edge_index=edges, y=torch.tensor([0, 1, 0, 1, 0]))
    model = Network()
    loss = torch.nn.functional.cross_entropy(model(graph.x, graph.edge_index), graph.y)
    loss.backward()
    explainer = Explainer(
        model,
        algorithm=GNNExplainer(epochs=2),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "raw",
        },
    )
    explanation = explainer(graph.x, graph.edge_index)
    return [loss.item(), float(explanation.edge_mask.sum())]
