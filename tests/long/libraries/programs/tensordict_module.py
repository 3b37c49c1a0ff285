"""tensordict: TensorDicts are stacked, locked and passed through modules."""

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential

DISTRIBUTION = "tensordict"
MADE_BY = ["tensordict"]


def run() -> list[float]:
    first = TensorDictModule(torch.nn.Linear(4, 8), in_keys=["x"], out_keys=["h"])
    second = TensorDictModule(torch.nn.Linear(8, 1), in_keys=["h"], out_keys=["y"])
    rows = torch.stack([TensorDict({"x": torch.randn(3, 4)}, [3]) for _ in range(2)]).lock_()
    done = TensorDictSequential(first, second)(rows.clone())
    parameters = TensorDict.from_module(first)
    with parameters.to_module(first):
        again = first(rows.clone())
    return [float(done["y"].sum()), float(again["h"].sum())]
