"""Cycles that no collection frees, in the live heap, at an out-of-memory error and as growth."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import cyclescope
from support.processes import python

torch: Any = pytest.importorskip("torch")

KEPT: list[Any] = []
MADE: list[weakref.ref[Any]] = []
"""What would stay in this process for ever."""


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    gc.collect()
    yield
    KEPT.clear()
    for made in MADE:
        take_apart(made())
    gc.collect()
    left = [made() for made in MADE if made() is not None]
    MADE.clear()
    assert not left


def take_apart(made: Any) -> None:
    if isinstance(made, numpy.ndarray):
        made[0] = None
    elif made is not None:
        made.grad = None
        for hooks in (made._backward_hooks, made._post_accumulate_grad_hooks):
            if hooks is not None:
                hooks.clear()
        if not made.is_leaf:
            # Releases what the graph has saved.
            made.sum().backward()


def made(tensor: Any) -> Any:
    MADE.append(weakref.ref(tensor))
    return tensor


def leaf() -> Any:
    return torch.zeros(90_000, requires_grad=True)


def a_lambda() -> Any:
    output = leaf() * 2
    output.register_hook(lambda grad: grad / output.norm())
    return made(output)


def a_default_argument() -> Any:
    parameter = leaf()
    parameter.register_post_accumulate_grad_hook(lambda _, own=parameter: own.grad)
    return made(parameter)


class Monitor:
    def __init__(self) -> None:
        self.output = leaf() * 2
        self.output.register_hook(self.see)

    def see(self, grad: Any) -> None:
        self.norm = grad.norm()


def a_method() -> Any:
    return made(Monitor().output)


class Packed:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


def what_a_function_saved() -> Any:
    with torch.autograd.graph.saved_tensors_hooks(Packed, lambda packed: packed.tensor):
        return made(leaf().exp())


def an_attribute_of_a_gradient() -> Any:
    parameter = leaf()
    (parameter * 2).sum().backward()
    parameter.grad.owner = parameter
    return made(parameter)


def an_array_of_objects() -> Any:
    array = numpy.empty(1, dtype=object)
    tensor = torch.zeros(90_000)
    array[0] = {"array": made(array), "tensor": tensor}
    return tensor


UNCOLLECTABLE: dict[Callable[[], Any], str] = {
    a_lambda: "function a_lambda.<locals>.<lambda> (test_uncollectable.py:",
    a_default_argument: "function a_default_argument.<locals>.<lambda> (test_uncollectable.py:",
    a_method: "bound method Monitor.see (test_uncollectable.py:",
    what_a_function_saved: f"{__name__}.Packed (test_uncollectable.py:",
    an_attribute_of_a_gradient: "torch.Tensor",
    an_array_of_objects: "dict",
}


def in_use() -> Any:
    KEPT.append(a_lambda())
    return KEPT[0]


def in_use_by_its_graph() -> Any:
    output = a_lambda()
    KEPT.append((output * 3).sum())
    return output


def garbage() -> Any:
    output = leaf() * 2
    output.register_hook(lambda grad: grad * 2)
    node = Packed(output)
    node.own = node  # type: ignore[attr-defined]
    return output


def a_module_hook() -> Any:
    module = torch.nn.Linear(300, 300)
    module.register_forward_hook(lambda *_: module.weight.norm() and None)
    module(torch.ones(2, 300)).sum().backward()
    return module.weight


COLLECTABLE: list[Callable[[], Any]] = [in_use, in_use_by_its_graph, garbage, a_module_hook]


def test_the_page_of_the_heap_says_so_first() -> None:
    # More than what earlier tests of the process have left.
    for _ in range(200):
        a_lambda()
    lead = cyclescope.heap().to_html().split("<main")[0].split("<h1")[1]
    assert "is in cycles that no collection frees" in lead
    assert "Deleting that reference" not in lead


def owner_of(make: Callable[[], Any]) -> tuple[str, weakref.ref[Any], list[str]]:
    tensor = make()
    alive, pointer = weakref.ref(tensor), tensor.data_ptr()
    del tensor
    heap = cyclescope.heap()
    owners = [buffer.owner for buffer in heap.buffers if buffer.pointer == pointer]
    return "".join(owners), alive, heap.notes


@pytest.mark.parametrize("make", UNCOLLECTABLE)
def test_the_heap_names_what_no_collection_frees(make: Callable[[], Any]) -> None:
    gc.collect()
    unreachable = cyclescope.heap().unreachable
    owner, alive, notes = owner_of(make)
    gc.collect()
    assert alive() is not None
    assert owner.startswith(f"uncollectable: {UNCOLLECTABLE[make]}"), owner
    assert sum("no collection frees it" in note for note in notes) == 1
    # It stays, and C++ that a test before it left may do so too.
    assert cyclescope.heap().unreachable <= unreachable


@pytest.mark.parametrize("make", COLLECTABLE)
def test_what_a_collection_or_the_program_frees_is_not_called_that(
    make: Callable[[], Any],
) -> None:
    owner, alive, _ = owner_of(make)
    assert not owner.startswith("uncollectable"), owner
    if KEPT:
        assert alive() is not None
    else:
        gc.collect()
        assert alive() is None


def test_many_of_them_are_one_growth() -> None:
    monitor = cyclescope.LeakMonitor(every=4, devices="any", min_bytes=0, max_share=float("inf"))
    with monitor:
        for _ in range(120):
            a_lambda()
            monitor.step()
    (found,) = monitor.found
    assert found.pattern == "uncollectable-cycles"
    assert found.owner == f"{UNCOLLECTABLE[a_lambda]}{line_of(a_lambda)})", found.owner
    page = monitor.to_html()
    assert "Cycles of function a_lambda" in page
    assert "<h2>Cycles that contain <code>" in page
    assert "No garbage collection frees it." in page
    assert "still refers to them" not in page
    assert 1.9 * 90_000 * 4 < found.bytes_per_step < 2.1 * 90_000 * 4


def test_parameters_that_only_their_gradients_keep_are_one_growth() -> None:
    # What other tests have made stays.
    earlier = {it.owner for it in cyclescope.heap().buffers}
    with cyclescope.LeakMonitor(
        every=4, devices="any", min_bytes=0, max_share=float("inf")
    ) as monitor:
        for _ in range(120):
            model = torch.nn.Linear(64, 256)
            made(model.weight)
            loss = model(torch.ones(4, 64)).square().sum()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loss.backward(create_graph=True)
            MADE.extend(weakref.ref(it) for it in model.parameters())
            del model, loss
            monitor.step()
        heap = cyclescope.heap()
    found = next(it for it in monitor.found if it.pattern == "uncollectable-cycles")
    assert found.owner == "torch.nn.parameter.Parameter"
    assert found.bytes_per_step > 2 * 64 * 256 * 4, "with the gradients"
    made_here = {it.owner for it in heap.buffers} - earlier
    owners = {it for it in made_here if it.startswith("uncollectable")}
    assert {it.split(" →")[0] for it in owners} == {"uncollectable: torch.nn.parameter.Parameter"}


def test_an_attribute_of_a_gradient_is_one_growth() -> None:
    with cyclescope.LeakMonitor(
        every=4, devices="any", min_bytes=0, max_share=float("inf")
    ) as monitor:
        for _ in range(120):
            an_attribute_of_a_gradient()
            monitor.step()
    (found,) = monitor.found
    assert found.owner == "torch.Tensor"
    assert 1.9 * 90_000 * 4 < found.bytes_per_step < 2.1 * 90_000 * 4


def line_of(function: Callable[[], Any]) -> int:
    return function.__code__.co_firstlineno + 2


def test_a_graph_of_any_depth_is_followed() -> None:
    """As of a state that nobody detaches: a walk by recursion would end the process."""
    program = """if True:
        import cyclescope, threading, torch
        class State: pass
        def look():
            state = State()
            state.me = state
            value = torch.zeros(1, requires_grad=True)
            state.value = value.clone()
            for _ in range(20_000):
                state.value = state.value + 1
            print(len(cyclescope.heap().buffers) > 0)
            print(len(cyclescope.why_alive(value).paths) > 0)
            state.value.register_hook(lambda grad, state=state: grad)
            del state, value
            print("uncollectable" in str(cyclescope.heap()))
        cyclescope.heap()
        threading.stack_size(256 * 1024)
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    """
    done = python("-c", program)
    assert (done.returncode, done.stdout.split()) == (0, ["True"] * 3), done.stderr[-2000:]
