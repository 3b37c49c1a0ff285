"""What ``devices`` may be: names, devices of frameworks, and lists of them."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

import cyclescope
from cyclescope._devices import device_names


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("cuda:1", ["cuda:1"]),
        ("gpu", ["gpu"]),
        ("gpu:1", ["gpu:1"]),
        (["tpu", "rocm:0"], ["tpu", "rocm:0"]),
        (("any",), ["any"]),
    ],
)
def test_names(given: Any, names: list[str]) -> None:
    assert device_names(given) == names


def test_a_device_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    assert device_names(torch.device("cuda:1")) == ["cuda:1"]
    assert device_names([torch.device("cuda"), "cpu"]) == ["cuda", "cpu"]
    with pytest.raises(ValueError, match='tensors on "meta" have no memory'):
        device_names(torch.device("meta"))


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("CUDA", "cuda"),
        ("CUDA:1", "cuda:1"),
        ("Cpu", "cpu"),
        ("cdua:0", "cuda:0"),
        ("gpus", "gpu"),
        ("ANY", "any"),
        ("any:0", None),
        ("cuda:x", None),
        ("toaster", None),
    ],
)
def test_a_misspelt_device(wrong: str, meant: str | None) -> None:
    with pytest.raises(ValueError, match=f'"{wrong}" is not a device') as raised:
        device_names(["cuda", wrong])
    assert (f"did you mean {meant!r}?" in str(raised.value)) == (meant is not None)


def test_what_is_no_device_runs_no_code() -> None:
    """An object that says that it is a device of a framework is none."""

    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        def __repr__(self) -> str:
            return "<hostile>"

    with pytest.raises(TypeError, match="a list of devices such as 'cuda:0', not <hostile>"):
        device_names(["cpu", Hostile()])
    with pytest.raises(TypeError, match="not b'cpu'"):
        device_names(b"cpu")


def test_a_device_of_jax_is_called_as_its_arrays_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in: the tests of JAX take a real one."""

    class Device:
        def __init__(self, platform: str, text: str, number: int) -> None:
            self.platform, self.text, self.local_hardware_id = platform, text, number

        def __str__(self) -> str:
            return self.text

    module: Any = types.ModuleType("jaxlib._jax")
    module.Device = Device
    monkeypatch.setitem(sys.modules, "jaxlib._jax", module)
    devices = [
        Device("cpu", "TFRT_CPU_0", 0),
        Device("gpu", "cuda:3", 3),
        Device("gpu", "rocm:1", 1),
        Device("gpu", "metal", 0),
        Device("tpu", "TPU_2(process=0,(0,0,0,0))", 2),
    ]
    assert device_names(devices) == ["cpu", "cuda:3", "rocm:1", "gpu:0", "tpu:2"]


def test_accelerators_are_not_host_memory() -> None:
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    held: list[Any] = [numpy.zeros(1000)]
    held.append(held)
    del held
    assert cyclescope.find_tensor_cycles(devices="gpu").leaks == []


@pytest.mark.parametrize("several", ["any,cpu", "any, cpu", "any cpu", ["cuda", "any;cpu"]])
def test_several_devices_are_a_list(several: Any) -> None:
    with pytest.raises(ValueError, match=r"several devices are a list: \['any', 'cpu'\]"):
        device_names(several)
