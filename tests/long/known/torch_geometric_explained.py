"""torch_geometric: a layer that was explained stores its own bound `propagate`."""

from torch_geometric.nn import GCNConv


def explained() -> GCNConv:
    layer = GCNConv(512, 512)
    layer.explain = True
    layer.explain = False
    return layer


def leak() -> None:
    explained()


def remedied() -> None:
    vars(explained()).pop("propagate", None)
