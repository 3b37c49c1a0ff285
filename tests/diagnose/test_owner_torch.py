"""What a user does to PyTorch's objects is the user's, and is what is cut."""

from __future__ import annotations

import collections
import gc
import itertools
import types
from collections.abc import Callable
from typing import Any

import pytest

from support.owners import WAYS, Way, check_is_no_librarys, found, hold_itself

pytestmark = pytest.mark.usefixtures("collector_paused")


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, with what it imports late, as part of the heap that no look visits."""
    module = pytest.importorskip("torch", reason="objects of PyTorch")
    module.optim.SGD(module.nn.Linear(2, 2).parameters(), lr=0.1)
    gc.collect()
    gc.freeze()
    return module


def torch_programs(torch: Any) -> dict[str, Callable[[], None]]:
    """Programs that close a cycle through PyTorch's objects by themselves."""
    nn = torch.nn

    def original_forward() -> None:
        layer = nn.Linear(64, 64)
        layer._orig = layer.forward

    def replaced_forward() -> None:
        layer = nn.Linear(64, 64)
        layer.forward = layer.forward

    def scheduler() -> None:
        layer = nn.Linear(64, 64)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        optimizer.sched = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def hooked() -> None:
        layer = nn.Linear(64, 64)
        layer.register_forward_hook(layer.forward)

    def hooked_state() -> None:
        layer = nn.Linear(64, 64)
        layer.register_state_dict_pre_hook(layer.extra_repr)

    def hooked_lambda() -> None:
        layer = nn.Linear(64, 64)
        layer.register_forward_hook(lambda *_: layer)

    def in_sequence() -> None:
        layers = nn.Sequential(nn.Linear(64, 64))
        layers[0].owner = [layers]

    def in_defaults() -> None:
        layer = nn.Linear(64, 64)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        optimizer.defaults["me"] = optimizer

    def in_groups() -> None:
        layer = nn.Linear(64, 64)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        optimizer.param_groups[0]["optimizer"] = optimizer

    def in_dataset() -> None:
        data = torch.utils.data.TensorDataset(torch.zeros(1000))
        data.loader = torch.utils.data.DataLoader(data)

    def compiled() -> None:
        layer = nn.Linear(64, 64)
        layer.call = torch.no_grad()(layer.forward)

    def deque() -> None:
        layer = nn.Linear(64, 64)
        layer.recent = collections.deque([layer])

    def bias() -> None:
        layer = nn.Linear(64, 64, bias=False)
        del layer._parameters["bias"]
        layer.bias = [layer]

    def step() -> None:
        layer = nn.Linear(64, 64)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        optimizer.step = optimizer.step

    made = locals()
    return {name: it for name, it in made.items() if isinstance(it, types.FunctionType)}


def check_all(programs: dict[str, Callable[[], None]]) -> None:
    """No leak is a library's. Each program runs once before: PyTorch imports some parts late."""
    wrong = []
    for name, make in programs.items():
        make()
        try:
            check_is_no_librarys(make)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


def test_what_a_user_does_to_pytorchs_objects(torch: Any) -> None:
    check_all(torch_programs(torch))


#: What each of them sets, of which a report is to name one.
TORCH_CUTS = {
    "original_forward": [("Linear", "._orig")],
    "replaced_forward": [("Linear", ".forward")],
    "scheduler": [("SGD", ".sched")],
    "in_sequence": [("Linear", ".owner"), ("list", "[0]")],
    "in_defaults": [("dict", "['me']")],
    "in_groups": [("dict", "['optimizer']")],
    "in_dataset": [("TensorDataset", ".loader")],
    "compiled": [("Linear", ".call")],
    "deque": [("Linear", ".recent"), ("collections.deque", "[0]")],
    "bias": [("Linear", ".bias"), ("list", "[0]")],
    "step": [("SGD", ".step")],
}


def test_what_a_user_set_on_pytorchs_objects_is_cut(torch: Any) -> None:
    programs = torch_programs(torch)
    for name, wanted in TORCH_CUTS.items():
        report = found(programs[name])
        cuts = [(cut.owner, cut.edge) for leak in report.leaks for cut in leak.cuts]
        ends = [(owner.rpartition(".")[2], edge) for owner, edge in cuts]
        wanted = [(owner.rpartition(".")[2], edge) for owner, edge in wanted]
        assert [one for one in wanted if one in ends], f"{name}: {cuts}"
        assert len(cuts) == 1, f"{name}: {cuts}"


def test_what_a_user_sets_on_pytorchs_objects(torch: Any) -> None:
    layers: dict[str, Callable[[], Any]] = {
        "Linear": lambda: torch.nn.Linear(64, 64),
        "Conv2d": lambda: torch.nn.Conv2d(3, 3, 3),
        "LSTM": lambda: torch.nn.LSTM(8, 8),
        "Sequential": lambda: torch.nn.Sequential(torch.nn.Linear(64, 64)),
        "ModuleList": lambda: torch.nn.ModuleList([torch.nn.Linear(64, 64)]),
        "MultiheadAttention": lambda: torch.nn.MultiheadAttention(8, 2),
        "SGD": lambda: torch.optim.SGD(torch.nn.Linear(64, 64).parameters(), lr=0.1),
        "Adam": lambda: torch.optim.Adam(torch.nn.Linear(64, 64).parameters()),
        "TensorDataset": lambda: torch.utils.data.TensorDataset(torch.zeros(1000)),
        "Generator": lambda: torch.utils.data.DataLoader([torch.zeros(1000)]),
    }
    programs: dict[str, Callable[[], None]] = {}
    for (name, new), way in itertools.product(layers.items(), WAYS):
        if way is hold_itself and issubclass(type(new()), torch.nn.Module):
            continue  # a module refuses to be its own child

        def make(new: Callable[[], Any] = new, way: Way = way) -> None:
            thing = new()
            way(thing)

        programs[f"{name} {way.__name__}"] = make
    check_all(programs)
