"""Validation of ``devices``, an argument that many functions share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, cast

from cyclescope import _native
from cyclescope._frameworks import registered
from cyclescope._imported import imported, imported_torch, modules
from cyclescope._suggest import nearest
from cyclescope._system import environment

SEPARATORS = re.compile(r"[\s,;|+]+")
DEVICE = re.compile(r"[a-z]+(:\d+)?")


class TorchDevice(Protocol):
    """A ``torch.device``."""

    @property
    def type(self) -> str: ...
    @property
    def index(self) -> Any: ...


class JaxDevice(Protocol):
    """A ``jax.Device``."""

    @property
    def platform(self) -> str: ...
    @property
    def local_hardware_id(self) -> Any: ...


Device: TypeAlias = str | TorchDevice | JaxDevice
Devices: TypeAlias = Device | Sequence[Device]
"""``"cuda"`` (all NVIDIA GPUs), ``"gpu"`` (any accelerator), ``"any"`` (host memory too),
``"cuda:0"``, ``"cpu"`` (host memory) or ``"pinned"`` and ``"shared"`` of it, a ``torch.device``, a
``jax.Device``, or a list of these."""


def device_names(devices: object) -> list[str]:
    """Validate ``devices`` and return the names of the devices.

    Raises:
        TypeError: If ``devices`` is neither a device nor a list of devices.
        ValueError: If one of them is not a device.
    """
    one = _name(devices)
    if one is not None:
        names = [one]
    elif isinstance(devices, Sequence) and not isinstance(devices, bytes):
        names = [_name_in_list(device) for device in devices]
    else:
        raise TypeError(
            "devices must be a string, a torch.device, a jax.Device, or a list of these, "
            f"not {devices!r}"
        )
    _accept_backend()
    try:
        _native.check_devices(names)
    except ValueError as error:
        if isinstance(error, UnicodeError):
            raise ValueError(f"devices: {names!a} cannot be names of devices") from None
        for name in names:
            _say_if_several(name)
            _say_if_misspelt(name)
        raise
    return names


def default_devices() -> list[str]:
    """What every function checks by default: accelerators, or all memory if there are none."""
    return ["gpu"] if blindness(["cuda"]) is None else ["any"]


FRAMEWORKS = ("jax", "tensorflow", "torch_xla", "mlx", "cupy", "numba")
"""Those with accelerators that PyTorch does not know of."""
HOST = ("any", "cpu", "pinned", "shared")


def blindness(names: list[str], *, has_ended: bool = False) -> str | None:
    """Why nothing can be found: only memory of accelerators is checked, and there is none.

    Otherwise None, and where that is not known. No device is initialised, so a driver without a
    device goes unnoticed.

    Args:
        names: The devices that are checked.
        has_ended: The program has imported all that it ever will.
    """
    reasons = [_why_none(name.partition(":")[0], has_ended) for name in names]
    return None if None in reasons else next(iter(reasons), None)


def _why_none(kind: str, has_ended: bool) -> str | None:
    """Why there is no memory of a kind; None if there may be some."""
    if kind in HOST or kind in registered:
        return None
    if kind == "cuda":
        return _why_no_cuda()
    no_cuda = _why_no_cuda()
    if kind == "gpu" and (no_cuda is None or registered):
        return None
    if any(name in modules() for name in FRAMEWORKS):
        return None
    if "torch" not in modules():
        none = "the program imported no framework that uses an accelerator"
        return (no_cuda if kind == "gpu" else none) if has_ended else None
    of_torch = imported("torch._C", "_accelerator_getAccelerator")
    if imported_torch() is None or of_torch is None:
        return None
    own = of_torch()
    if kind == "gpu":
        return no_cuda if own is None or own.type in ("cpu", "cuda") else None
    return None if own is not None and own.type == kind else f"this PyTorch has no {kind} support"


def _why_no_cuda() -> str | None:
    if getattr(imported("torch", "version"), "hip", None) is not None:
        return None
    if not _native.cuda_driver_present():
        return "this machine has no CUDA driver"
    # CUDA reads the list when it is initialised, up to the first entry that names no device.
    visible = environment("CUDA_VISIBLE_DEVICES")
    begun = (imported("torch.cuda", "is_initialized") or bool)()
    if visible is not None and not begun and visible.strip()[:1] in ("", "-"):
        return f"CUDA_VISIBLE_DEVICES is {visible!r}, which hides every GPU"
    return None


def _accept_backend() -> None:
    """Accept the name that a backend outside of PyTorch has given itself."""
    name = imported("torch._C", "_get_privateuse1_backend_name")
    if name is not None:
        _native.add_device_kind(name())


def _name_in_list(device: object) -> str:
    name = _name(device)
    if name is None:
        raise TypeError(f"devices must be a list of devices such as 'cuda:0', not {device!r}")
    return name


def _name(device: Any) -> str | None:
    """The name of a device; None for what is none."""
    if issubclass(type(device), str):
        return cast("str", device)
    if type(device) is imported("torch", "device"):
        return str(device)
    if type(device) is imported("jaxlib._jax", "Device"):
        return _name_of_jax(device)
    return None


def _name_of_jax(device: Any) -> str:
    """The name that arrays on a device of JAX have in reports (`src/device/jax.rs`)."""
    kind = device.platform.lower()
    if kind == "cpu":
        return "cpu"
    if kind == "gpu":
        brand = str(device).lower()
        kind = next((name for name in ("cuda", "rocm") if brand.startswith(name)), kind)
    return f"{kind}:{device.local_hardware_id}"


def _say_if_several(name: str) -> None:
    """Raise ValueError for the names of several devices in one string."""
    parts = [part for part in SEPARATORS.split(name) if part]
    known = ["any", *_native.device_kinds()]
    if len(parts) > 1 and all(
        DEVICE.fullmatch(part) and part.partition(":")[0] in known for part in parts
    ):
        raise ValueError(
            f'devices: "{name}" is not a device; several devices are a list: {parts!r}'
        ) from None


def _say_if_misspelt(name: str) -> None:
    """Raise ValueError for the name of a device that is like another's."""
    kind, colon, number = name.partition(":")
    if kind.lower() == "meta":
        raise ValueError('devices: tensors on "meta" have no memory') from None
    known = ["any", *_native.device_kinds()]
    near = "mps" if kind.lower() == "metal" else nearest(kind, known)
    if kind in known or near is None:
        return
    # What follows the kind may be wrong as well.
    meant = near + colon + number if number.isdecimal() and near != "any" else near
    raise ValueError(f'devices: "{name}" is not a device; did you mean {meant!r}?') from None
