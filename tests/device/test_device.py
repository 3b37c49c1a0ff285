"""Which objects hold memory, of which device, and how much: PyTorch and NumPy, without a GPU."""

from __future__ import annotations

import gc
import json
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import cyclescope
from cyclescope import _native
from support.nodes import Holder
from support.processes import run

MIB = 2**20


pytestmark = pytest.mark.usefixtures("collector_paused")


def held(
    make: Callable[[], object], devices: cyclescope.Devices = "any"
) -> list[cyclescope.Buffer]:
    """The buffers reported of a cycle that holds what ``make`` returns, and nothing else does."""
    Holder(make())
    report = cyclescope.find_tensor_cycles(devices=devices, frozen=False)
    return [buffer for leak in report.leaks for buffer in leak.buffers]


def shapes(buffers: list[cyclescope.Buffer]) -> list[tuple[int, str | None, object]]:
    return [(buffer.bytes, buffer.dtype, buffer.shape) for buffer in buffers]


storage: Any = torch.UntypedStorage


# --- PyTorch: whose memory, and how much ---


def test_a_tensor() -> None:
    pointers = []

    def make() -> torch.Tensor:
        tensor = torch.zeros(3, 5)
        pointers.append(tensor.data_ptr())
        return tensor

    (buffer,) = held(make)
    assert (buffer.type_name, buffer.device, buffer.confirmed) == ("torch.Tensor", "cpu", False)
    assert (buffer.pointer, buffer.bytes) == (pointers[0], 60)
    assert (buffer.dtype, buffer.shape) == ("float32", (3, 5))


def test_a_parameter() -> None:
    (buffer,) = held(lambda: torch.nn.Parameter(torch.zeros(8, dtype=torch.float64)))
    assert "Parameter" in buffer.type_name
    assert (buffer.bytes, buffer.dtype, buffer.shape) == (64, "float64", (8,))


def test_an_untyped_storage() -> None:
    assert shapes(held(lambda: storage(100))) == [(100, None, None)]
    assert shapes(held(lambda: torch.zeros(25).untyped_storage())) == [(100, None, None)]


def test_a_small_view_holds_its_whole_storage() -> None:
    assert shapes(held(lambda: torch.zeros(1000)[10:12])) == [(4000, "float32", (2,))]


def test_a_storage_counts_once() -> None:
    def make() -> list[object]:
        whole = torch.zeros(1000)
        return [whole, whole[500:], whole.view(10, 100), whole.detach(), whole.untyped_storage()]

    assert [buffer.bytes for buffer in held(make)] == [4000]
    Holder(make())
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leak.bytes_held == 4000


@pytest.mark.parametrize("share", [torch.Tensor.detach, lambda t: t[3:5], torch.Tensor.numpy])
def test_a_storage_that_a_live_tensor_shares_is_not_claimed(
    share: Callable[[torch.Tensor], object],
) -> None:
    alive = torch.zeros(1000)
    assert held(lambda: share(alive)) == []
    assert held(lambda: alive) == []
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, devices="any") as watch:
        Holder(share(alive))
        gc.collect()
        assert watch.flush(60)
    assert reports == []
    assert float(alive.sum()) == 0


def wrapped_by_grad(tensor: torch.Tensor) -> torch.Tensor:
    """What a function that `torch.func.grad` transforms has kept of its argument's double."""
    kept: list[torch.Tensor] = []

    def total(it: torch.Tensor) -> torch.Tensor:
        kept.append(it * 2)
        return it.sum()

    torch.func.grad(total)(tensor)
    return kept[0]


def wrapped_by_vmap(tensor: torch.Tensor) -> torch.Tensor:
    """What a function that `torch.func.vmap` transforms has kept of its argument."""
    kept: list[torch.Tensor] = []

    def same(it: torch.Tensor) -> torch.Tensor:
        kept.append(it)
        return it

    torch.func.vmap(same)(tensor)
    return kept[0]


def functional(tensor: torch.Tensor) -> torch.Tensor:
    """As the tracer of ``torch.compile`` sees a tensor."""
    with FunctionalTensorMode():
        wrapped: torch.Tensor = FunctionalTensor.to_functional(tensor)
    return wrapped


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: torch.zeros(4, dtype=torch.complex64), [(32, "complex64", (4,))]),
        (lambda: torch.zeros(4, dtype=torch.complex64).conj(), [(32, "complex64", (4,))]),
        (
            lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
            [(4, "qint8", (4,))],
        ),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            [(20, "float32", None)],
        ),
        (lambda: torch.zeros(0), []),
        (lambda: torch.zeros(1000, device="meta"), []),
        (lambda: torch._to_functional_tensor(torch.ones(3)), [(12, "float32", (3,))]),
        (lambda: functional(torch.ones(3)), [(12, "float32", (3,))]),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
            [(24, "int64", (3,)), (20, "float32", (5,))],
        ),
        (lambda: torch.eye(30).to_sparse(), [(480, "int64", (2, 30)), (120, "float32", (30,))]),
        (
            lambda: torch.eye(30).to_sparse_csr(),
            [(480, "int64", (30,)), (248, "int64", (31,)), (120, "float32", (30,))],
        ),
        (lambda: wrapped_by_grad(torch.ones(3)), [(12, "float32", (3,))]),
        (lambda: wrapped_by_vmap(torch.ones(3, 2)), [(24, "float32", (3, 2))]),
    ],
    ids=[
        "complex",
        "conj",
        "quantised",
        "nested",
        "empty",
        "meta",
        "functional",
        "FunctionalTensor",
        "jagged",
        "coo",
        "csr",
        "func.grad",
        "func.vmap",
    ],
)
def test_kinds_of_tensors(make: Callable[[], torch.Tensor], found: list[object]) -> None:
    # What PyTorch imports for the first of a kind may leave garbage of its own.
    make()
    gc.collect()
    assert shapes(held(make)) == found


def test_a_watch_does_not_look_inside_a_sparse_tensor() -> None:
    """PyTorch's operators would let other threads run in the middle of a collection."""
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, devices="any") as watch:
        Holder(torch.eye(30).to_sparse())
        gc.collect()
        Holder(torch.eye(30))
        gc.collect()
        watch.flush()
    assert [leak.bytes_held for report in reports for leak in report.leaks] == [3600]


def test_fake_tensors_are_silent_whatever_they_claim() -> None:
    def make() -> torch.Tensor:
        with FakeTensorMode():
            return torch.zeros(1000, device="cuda")

    assert make().device.type == "cuda"
    assert held(make, "any") == []
    assert held(make, "cuda") == []


def test_a_freed_storage_is_silent() -> None:
    def make() -> torch.Tensor:
        tensor = torch.zeros(1000)
        tensor.untyped_storage().resize_(0)
        return tensor

    assert held(make) == []


def test_a_lazy_clone_is_not_copied() -> None:
    """To ask for its address would: it shares the memory until somebody writes."""
    original = torch.zeros(1000)
    clone = torch._lazy_clone(original)
    is_lazy: Any = torch._C._is_cow_tensor  # type: ignore[attr-defined]
    assert is_lazy(clone)
    assert held(lambda: [clone, original]) == []
    assert is_lazy(clone)


# --- PyTorch: no code of the program runs ---

calls: list[str] = []


class Plain(torch.Tensor):
    """A subclass made over the same memory."""

    @classmethod
    def __torch_function__(cls, func: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(str(func))
        raise RuntimeError("called by cyclescope")


make_wrapper: Any = torch.Tensor._make_wrapper_subclass


class Wrapper(torch.Tensor):
    """A subclass without memory, around another tensor."""

    wrapped: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        wrapper: Wrapper = make_wrapper(cls, inner.shape, dtype=inner.dtype, device="cpu")
        wrapper.wrapped = inner
        return wrapper

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        calls.append(str(func))
        raise RuntimeError("called by cyclescope")


class OwnSizes(Wrapper):
    """A wrapper that computes even its sizes in Python."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OwnSizes:
        wrapper: OwnSizes = make_wrapper(
            cls, inner.shape, device="cpu", dispatch_sizes_strides_policy="sizes"
        )
        wrapper.wrapped = inner
        return wrapper


class OwnLayout(Wrapper):
    """A wrapper that is asked in Python even for its layout, as PyTorch's jagged tensors are."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OwnLayout:
        wrapper: OwnLayout = make_wrapper(cls, inner.shape, device="cpu", dispatch_layout=True)
        wrapper.wrapped = inner
        return wrapper


def make_subclass() -> torch.Tensor:
    return torch.Tensor._make_subclass(Plain, torch.zeros(1000))


@pytest.mark.parametrize(
    ("make", "type_name"),
    [
        (make_subclass, "Plain"),
        (lambda: Wrapper(torch.zeros(1000)), "torch.Tensor"),
        (lambda: OwnSizes(torch.zeros(1000)), "torch.Tensor"),
        (lambda: OwnLayout(torch.zeros(1000)), "torch.Tensor"),
        (lambda: Wrapper(Wrapper(torch.zeros(1000))), "torch.Tensor"),
    ],
    ids=["subclass", "wrapper", "own sizes", "own layout", "wrapped twice"],
)
@pytest.mark.parametrize("devices", ["any", "cuda"])
def test_subclasses_are_not_called(
    make: Callable[[], torch.Tensor], type_name: str, devices: str
) -> None:
    Holder(make())
    calls.clear()
    report = cyclescope.find_tensor_cycles(devices=devices, frozen=False)
    kept, made = make(), calls[:]
    cyclescope.heap()
    cyclescope.why_alive(kept)
    monitor = cyclescope.LeakMonitor(devices=devices, every=1)
    monitor.step()
    monitor.stop()
    assert calls == made
    buffers = [buffer for leak in report.leaks for buffer in leak.buffers]
    if devices == "cuda":
        assert buffers == []
    else:
        (buffer,) = buffers
        assert type_name in buffer.type_name
        assert shapes(buffers) == [(4000, "float32", (1000,))]


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        calls.append(str(func))
        return func(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        calls.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [FunctionMode, DispatchMode])
@pytest.mark.parametrize("devices", ["any", "cuda"])
def test_modes_that_the_program_is_in_are_not_called(mode: Any, devices: str) -> None:
    Holder([torch.zeros(1000), torch.nn.Parameter(torch.zeros(10)), make_subclass()])
    with mode():
        calls.clear()
        report = cyclescope.find_tensor_cycles(devices=devices, frozen=False)
        assert calls == []
        torch.zeros(1) + 1
        assert calls, "the mode was off, so this proves nothing"
    assert sum(leak.bytes_held for leak in report.leaks) == (8040 if devices == "any" else 0)


def test_a_distributed_tensor_is_its_local_tensor() -> None:
    said = run("""
        import gc, json, os, torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        import cyclescope

        gc.disable()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        mesh = init_device_mesh("cpu", (1,))

        class Holder:
            def __init__(self, held):
                self.held, self.me = held, self

        # What PyTorch imports at the first one leaves garbage of its own.
        distribute_tensor(torch.zeros(1), mesh, [Shard(0)])
        gc.collect()
        Holder(distribute_tensor(torch.zeros(1000), mesh, [Shard(0)]))
        report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
        print(json.dumps([
            [buffer.type_name, buffer.bytes, buffer.path]
            for leak in report.leaks for buffer in leak.buffers
        ]), flush=True)
        os._exit(0)
    """)
    assert said == [["torch.Tensor", 4000, [".held", "._local_tensor"]]]


# --- Which devices ---


def leak_on_cpu() -> None:
    Holder(torch.zeros(1000))


@pytest.mark.parametrize(
    ("devices", "count"),
    [
        ("cuda", 0),
        ("cuda:0", 0),
        ("any", 1),
        ("cpu", 1),
        (["cuda", "cpu"], 1),
        (("cpu",), 1),
        (["cuda:0", "any"], 1),
        (["cuda:0", "cuda:1", "xpu", "mps:0"], 0),
    ],
)
def test_the_devices_asked_for(devices: cyclescope.Devices, count: int) -> None:
    leak_on_cpu()
    assert len(cyclescope.find_tensor_cycles(devices=devices, frozen=False).leaks) == count


def test_gpus_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "cuda_driver_present", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    leak_on_cpu()
    assert cyclescope.find_tensor_cycles().leaks == []
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append) as watch:
        leak_on_cpu()
        gc.collect()
        assert watch.flush(60)
    assert reports == []


ENTRANCES: list[Callable[[Any], object]] = [
    lambda devices: cyclescope.find_tensor_cycles(devices=devices, frozen=False),
    lambda devices: cyclescope.warn_tensor_cycles(devices=devices),
    lambda devices: cyclescope.observe_tensor_cycles(print, devices=devices),
]


@pytest.mark.parametrize("entrance", ENTRANCES, ids=["find", "warn", "observe"])
@pytest.mark.parametrize("wrong", ["disk", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "", " "])
def test_names_of_no_device(entrance: Callable[[Any], object], wrong: str) -> None:
    for devices in (wrong, [wrong], ["cuda", wrong]):
        with pytest.raises(ValueError, match="devices") as raised:
            entrance(devices)
        assert json.dumps(wrong) in str(raised.value)
        assert "'any'" in str(raised.value)


@pytest.mark.parametrize("entrance", ENTRANCES, ids=["find", "warn", "observe"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (torch.device("meta"), "have no memory"),
        ("METAL", "did you mean 'mps'"),
        ("\ud800", r"cannot be names of devices"),
    ],
)
def test_names_that_are_answered(
    entrance: Callable[[Any], object], wrong: object, said: str
) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        entrance(wrong)
    assert type(raised.value) is ValueError


@pytest.mark.parametrize("entrance", ENTRANCES, ids=["find", "warn", "observe"])
@pytest.mark.parametrize("wrong", [0, b"cuda", {"cuda"}, [0], ["cuda", None]])
def test_what_is_no_name(entrance: Callable[[Any], object], wrong: object) -> None:
    with pytest.raises(TypeError, match="devices must be"):
        entrance(wrong)


@pytest.mark.parametrize("entrance", ENTRANCES, ids=["find", "warn", "observe"])
def test_no_device_at_all(entrance: Callable[[Any], object]) -> None:
    with pytest.raises(ValueError, match="devices is empty"):
        entrance([])


# --- NumPy ---


class Array(numpy.ndarray):
    """A subclass with attributes of its own, which runs code at every turn."""

    def __getattribute__(self, name: str) -> Any:
        calls.append(name)
        return super().__getattribute__(name)


def numpy_subclass() -> object:
    array = numpy.zeros(100).view(Array)
    array.note = "mine"  # type: ignore[attr-defined]
    return array


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: numpy.zeros((3, 5)), [(120, "float64", (3, 5))]),
        (lambda: numpy.zeros(1000)[10:20], [(8000, "float64", (10,))]),
        (lambda: numpy.zeros(1000)[::-1], [(8000, "float64", (1000,))]),
        (lambda: numpy.zeros((2, 3)).T, [(48, "float64", (3, 2))]),
        (lambda: numpy.zeros(5, dtype="i4,f8"), [(60, "V12", (5,))]),
        (lambda: numpy.full(7, None), [(56, "object", (7,))]),
        (lambda: numpy.zeros(3, dtype=bool), [(3, "bool", (3,))]),
        (lambda: numpy.zeros(2, dtype=">u2"), [(4, "uint16", (2,))]),
        (lambda: numpy.zeros(0), []),
        (lambda: numpy.zeros(()), [(8, "float64", ())]),
        (lambda: numpy.broadcast_to(numpy.zeros(4), (10**9, 4)), [(32, "float64", (10**9, 4))]),
        (lambda: numpy.frombuffer(bytes(100), dtype="u1"), [(100, "uint8", (100,))]),
        (numpy_subclass, [(800, "float64", (100,))]),
        (lambda: sliding_window_view(numpy.zeros(100), 7), [(800, "float64", (94, 7))]),
        (lambda: as_strided(numpy.zeros(9), (10**9,), (0,)), [(72, "float64", (10**9,))]),
    ],
)
def test_arrays(make: Callable[[], object], found: list[object]) -> None:
    Holder(make())
    calls.clear()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    assert calls == []
    assert shapes([buffer for leak in report.leaks for buffer in leak.buffers]) == found
    assert held(make, "cuda") == []


def test_views_of_one_array_count_once() -> None:
    def make() -> list[object]:
        whole = numpy.zeros(1000)
        return [whole, whole[500:], whole.reshape(10, 100), sliding_window_view(whole, 5)[3:]]

    assert [buffer.bytes for buffer in held(make)] == [8000]


def test_an_array_and_its_tensor_count_once() -> None:
    def make() -> list[object]:
        tensor = torch.zeros(1000)[500:]
        return [tensor, tensor.numpy()]

    assert [buffer.bytes for buffer in held(make)] == [4000]


def test_memory_that_somebody_else_still_has_is_not_claimed(tmp_path: Path) -> None:
    array = numpy.zeros(1000)
    assert held(lambda: array[10:20]) == []
    assert held(lambda: sliding_window_view(array, 5)) == []
    lender = bytearray(1000)
    assert held(lambda: numpy.frombuffer(lender, dtype="u1")) == []
    assert held(lambda: numpy.asarray(memoryview(lender))) == []
    assert held(lambda: numpy.from_dlpack(torch.zeros(10))) == []


def test_a_mapped_file_is_not_memory_of_the_program(tmp_path: Path) -> None:
    path = tmp_path / "mapped"
    path.write_bytes(bytes(4096))
    assert held(lambda: numpy.memmap(path, dtype="u1", mode="r+")) == []
    assert held(lambda: numpy.frombuffer(mmap.mmap(-1, 4096), dtype="u1")) == []
