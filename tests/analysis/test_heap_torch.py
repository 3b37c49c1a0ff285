"""The live heap of a program that uses PyTorch: what tensors are for, and looks beside autograd."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import cyclescope
from cyclescope import _native
from support.heap_rows import of, row

torch: Any = pytest.importorskip("torch")

MIB = 1 << 20
history: list[Any] = []
model: Any = None


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    gc.collect()
    yield
    history.clear()
    globals()["model"] = None
    gc.collect()


def test_tensors_on_the_memory_of_another_object() -> None:
    lent = bytearray(MIB)
    history.append(torch.frombuffer(lent, dtype=torch.uint8))
    history.append(torch.from_numpy(numpy.frombuffer(lent, numpy.uint8)))
    pointer = history[0].data_ptr()
    # The first look makes objects of the storages.
    assert [of(cyclescope.heap(), pointer).holders for _ in range(2)] == [2, 2]
    del lent
    owner = row(cyclescope.heap().top("owner"), "`history`")
    assert (owner.host_bytes, owner.retained_bytes) == (MIB, MIB)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_the_graphs_of_gradients_are_the_models() -> None:
    global model
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Tanh(), torch.nn.Linear(512, 1))
    for _ in range(3):
        model(torch.ones(256, 256)).pow(2).sum().backward(create_graph=True)
    owner = row(cyclescope.heap().top("owner"), "`model`")
    for parameter in model.parameters():
        parameter.grad = None
    # Each graph has at least what `Tanh` has made.
    after = row(cyclescope.heap().top("owner"), "`model`")
    assert owner.host_bytes - after.host_bytes > 3 * 256 * 512 * 4


def test_categories_of_a_training_step() -> None:
    global model
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.ones(8, 64)
    model(batch).sum().backward()
    optimizer.step()
    loss = model(batch).relu().sum()
    heap = cyclescope.heap()

    def purpose(tensor: Any) -> str:
        return of(heap, tensor.untyped_storage().data_ptr()).category

    weight = model[0].weight
    assert purpose(weight) == "parameter"
    assert purpose(model[1].running_mean) == "parameter"
    assert of(heap, weight.untyped_storage().data_ptr()).owner.endswith(
        ".0 (Linear) → .weight → Parameter"
    )
    assert purpose(weight.grad) == "gradient"
    assert purpose(optimizer.state[weight]["exp_avg"]) == "optimizer state"
    assert purpose(batch) == "input"
    assert row(heap.top("category"), "activation").count >= 1
    assert loss.requires_grad


class Trainer:
    """Has its model far away."""

    def __init__(self, net: Any) -> None:
        self.parts = {"strategy": [{"model": net}]}


@pytest.mark.parametrize("nearer", ["nothing", "parameters", "alias", "optimizer"])
def test_parameters_and_buffers_belong_to_their_module(nearer: str) -> None:
    global model
    layers = [torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 64)]
    net = torch.nn.Sequential(torch.nn.Sequential(*layers), torch.nn.Linear(64, 8))
    trainer: Trainer | None = Trainer(net)
    loss = net(torch.randn(32, 64)).pow(2).mean()
    if nearer == "parameters":
        history.extend([*net.parameters(), *net.buffers()])
    elif nearer == "alias":
        history.extend(each.detach().t() for each in net.parameters())
    elif nearer == "optimizer":
        history.append(torch.optim.SGD(net.parameters(), 0.1))
    tensors = [each for _, each in (*net.named_parameters(), *net.named_buffers())]
    pointers = {tensor.data_ptr() for tensor in tensors}
    del net, layers, tensors
    heap = cyclescope.heap()
    owned = [buffer for buffer in heap.buffers if buffer.pointer in pointers]
    assert len(owned) == len(pointers)
    assert all("`trainer`" in buffer.owner for buffer in owned), [each.owner for each in owned]
    assert any("`loss`" in buffer.owner for buffer in heap.buffers)
    # Neither frees them alone: the graph keeps what the backward pass needs.
    assert row(heap.top("owner"), "`loss`").retained_bytes > 0
    del loss
    trainer = trainer if nearer == "nothing" else None
    heap = cyclescope.heap()
    owners = {buffer.pointer: buffer.owner for buffer in heap.buffers}
    other = "`trainer`" if nearer == "nothing" else "`history`"
    assert all(other in owners[pointer] for pointer in pointers & set(owners))


def test_what_only_a_graph_keeps_is_that_of_its_result() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    pointer = net[1].weight.data_ptr()
    loss = net(torch.randn(32, 64)).pow(2).mean()
    del net
    assert "`loss`" in of(cyclescope.heap(), pointer).owner
    assert loss is not None


def test_what_has_another_name_is_not_that_of_a_graph() -> None:
    data = torch.randn(32, 64, requires_grad=True)
    hidden = data.exp()
    history.append({"first": {"second": {"third": hidden}}})
    pointer = hidden.data_ptr()
    loss = hidden.sum()
    del hidden
    assert "`history`" in of(cyclescope.heap(), pointer).owner
    history.clear()
    assert "`loss`" in of(cyclescope.heap(), pointer).owner
    assert loss is not None


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("Adam", {}),
        ("SGD", {"momentum": 0.9}),
        # Its state has lists of tensors.
        ("LBFGS", {"history_size": 4}),
    ],
)
def test_the_post_mortem_sorts_as_the_categories(optimizer: str, options: dict[str, Any]) -> None:
    global model
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 1)
    )
    optimizing = getattr(torch.optim, optimizer)(model.parameters(), **options)
    batch = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))

    def closure() -> Any:
        optimizing.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizing.step(closure)
    sorted_ = _native.memory_in_use("cpu", 60)
    categories = {buffer.pointer: buffer.category for buffer in cyclescope.heap().buffers}

    def of_role(pieces: list[tuple[int, int]]) -> set[str]:
        assert pieces
        return {categories[pointer] for pointer, _ in pieces}

    assert of_role(sorted_["parameters"]) == {"parameter"}
    assert of_role(sorted_["module buffers"]) == {"parameter"}
    assert of_role(sorted_["gradients"]) == {"gradient"}
    assert of_role(sorted_["optimizer state"]) == {"optimizer state"}
    assert not of_role(sorted_["other tensors"]) & {"parameter", "optimizer state"}


def test_a_state_that_holds_itself_over_and_over_takes_no_longer() -> None:
    optimizing = torch.optim.SGD([torch.nn.Parameter(torch.ones(64, 64))])
    moment = torch.ones(64, 64)
    ring: list[Any] = [moment]
    ring += [ring] * 30_000
    optimizing.state["ring"] = ring
    # Way by way it would be a billion, and hours.
    sorted_ = _native.memory_in_use("cpu", 60)
    assert moment.data_ptr() in dict(sorted_["optimizer state"])
    assert of(cyclescope.heap(), moment.data_ptr()).category == "optimizer state"


def test_what_is_not_kept_by_autograd_is_no_activation() -> None:
    with torch.no_grad():
        history.append((torch.ones(8, 64) * 2).exp())
    heap = cyclescope.heap()
    assert of(heap, history[0].untyped_storage().data_ptr()).category == "other"


def test_a_kept_loss_owns_what_its_graph_saved() -> None:
    weight = torch.ones(64, 1024, requires_grad=True)
    history.append((weight * 2).exp().sum())
    del weight
    heap = cyclescope.heap()
    owner = row(heap.top("owner"), "`history`")
    assert owner.host_bytes >= 64 * 1024 * 4
    assert owner.categories["activation"] >= 64 * 1024 * 4


# During a backward pass.


def test_a_look_from_inside_a_backward_pass() -> None:
    looks: list[cyclescope.Heap] = []

    def unpack(tensor: Any) -> Any:
        looks.append(cyclescope.heap())
        return tensor

    weight = torch.ones(64, 1024, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        result = weight.exp()
    result = (result * 2).exp()
    result.register_hook(lambda gradient: looks.append(cyclescope.heap()))
    weight.register_post_accumulate_grad_hook(lambda leaf: looks.append(cyclescope.heap()))
    result.sum().backward()
    in_hook, in_unpack, after_accumulation = looks
    assert row(in_hook.top("category"), "activation").host_bytes >= 64 * 1024 * 4
    assert not any("another thread" in note.lower() for look in looks for note in look.notes)
    assert in_unpack.host_bytes >= weight.nbytes
    assert of(after_accumulation, weight.grad.data_ptr()).category == "gradient"


def test_a_look_while_another_thread_is_in_a_backward_pass() -> None:
    reached, done = threading.Event(), threading.Event()
    weight = torch.ones(64, 1024, requires_grad=True)
    result = (weight * 2).exp()

    def wait(gradient: Any) -> None:
        reached.set()
        done.wait()

    result.register_hook(wait)
    thread = threading.Thread(target=result.sum().backward)
    thread.start()
    try:
        assert reached.wait(60)
        during = cyclescope.heap()
    finally:
        done.set()
        thread.join()
    assert any(
        note.startswith("Another thread is running a backward pass") for note in during.notes
    )
    assert of(during, weight.data_ptr()).bytes == weight.nbytes
    after = cyclescope.heap()
    assert not any(note.startswith("Another thread") for note in after.notes)
    assert of(after, weight.grad.data_ptr()).category == "gradient"


def test_a_look_while_another_thread_sets_an_attribute() -> None:
    """It may be a gradient, whose memory PyTorch lets others see while it goes."""
    lock = threading.Lock()

    class Setter:
        # Called with the object and the value, for a lock: whether to wait, and how long.
        __set__ = lock.acquire

    class Slow(int):
        attribute: Any = Setter()

    def set_attribute() -> None:
        Slow(1).attribute = 60.0

    weight = torch.ones(64, requires_grad=True)
    weight.sum().backward()
    thread = threading.Thread(target=set_attribute)
    with lock:
        thread.start()
        notes: list[str] = []
        until = time.monotonic() + 60
        while not notes and time.monotonic() < until:
            notes = [n for n in cyclescope.heap().notes if n.startswith("Another thread")]
    thread.join()
    assert len(notes) == 1
    after = cyclescope.heap()
    assert not any(note.startswith("Another thread") for note in after.notes)
    assert of(after, weight.grad.data_ptr()).category == "gradient"


def test_looks_while_another_thread_trains() -> None:
    stop = threading.Event()
    steps: list[float] = []
    net = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(8)])

    def train() -> None:
        while not stop.is_set():
            net.zero_grad()
            loss = net(torch.ones(4, 32)).square().sum()
            loss.backward()
            steps.append(loss.item())

    thread = threading.Thread(target=train)
    thread.start()
    try:
        looks = [cyclescope.heap() for _ in range(10)]
    finally:
        stop.set()
        thread.join()
    # Each look sees the parameters, and each step comes to the same loss.
    for look in looks:
        assert of(look, net[0].weight.data_ptr()).category == "parameter"
    assert steps
    assert set(steps) == {steps[0]}


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "exp", "sqrt", "relu"])
def test_the_result_that_a_function_saves_is_an_activation(name: str) -> None:
    others = {each.pointer for each in cyclescope.heap().buffers}
    batch = torch.rand(8, 512)
    weight = torch.rand(512, 512, requires_grad=True)
    total = getattr(torch, name)(batch @ weight).sum()
    new = [each for each in cyclescope.heap().buffers if each.pointer not in others]
    held = [each for each in new if each.bytes == 8 * 512 * 4]
    assert sorted(each.category for each in held) == ["activation", "input"]
    del total


def test_looks_of_several_threads_do_not_see_each_other(collector_paused: None) -> None:
    class Node:
        pass

    node = Node()
    node.me = node  # type: ignore[attr-defined]
    node.tensor = torch.ones(2**18)  # type: ignore[attr-defined]
    pointer = node.tensor.data_ptr()  # type: ignore[attr-defined]
    del node
    # While PyTorch says what a graph has saved, another thread may run.
    weight = torch.ones(64, 64, requires_grad=True)
    losses = [((weight * 2).exp() * 3).tanh().sum() for _ in range(20)]
    owners: set[str] = set()

    def look() -> None:
        owners.update(of(cyclescope.heap(), pointer).owner for _ in range(5))

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert owners == {"referenced by unreachable objects only → Tensor"}
    del losses


@pytest.mark.parametrize(
    ("inspect", "arguments"),
    [
        (cyclescope.heap, 0),
        (cyclescope.find_tensor_cycles, 0),
        # The caller has it on its stack, and the call in its tuple.
        (lambda: cyclescope.why_alive(history[0]), 2),
        (lambda: _native.look(["any"]), 0),
    ],
    ids=["heap", "find_tensor_cycles", "why_alive", "look"],
)
def test_nothing_is_held_while_functions_of_frameworks_run(
    monkeypatch: pytest.MonkeyPatch, inspect: Callable[[], object], arguments: int
) -> None:
    """They may let other threads run, which may count references, or collect."""
    seen: list[int] = []
    history.append([numpy.zeros(MIB, dtype=numpy.uint8)])
    before = sys.getrefcount(history[0])

    def is_available() -> bool:
        seen.append(sys.getrefcount(history[0]))
        return False

    monkeypatch.setattr(torch.distributed, "is_available", is_available)
    inspect()
    assert set(seen) <= {before + arguments}


def test_a_checkpoint_keeps_its_inputs() -> None:
    checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint
    layers = [torch.nn.Linear(64, 64) for _ in range(3)]
    value = torch.ones(1000, 64)
    for layer in layers:
        value = checkpoint(layer, torch.relu(value), use_reentrant=False)
    loss = value.sum()
    del value
    report = cyclescope.heap()
    saved = [it for it in report.buffers if it.bytes == 1000 * 64 * 4]
    assert len(saved) == 3
    assert all("`loss`" in it.owner for it in saved)
    owner = row(report.top("owner"), "`loss`")
    assert owner.retained_bytes >= sum(it.bytes for it in saved)
    assert loss.grad_fn is not None
