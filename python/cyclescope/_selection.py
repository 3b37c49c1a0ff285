"""Validation of ``devices`` and ``ignore``, the arguments that many functions share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from cyclescope import _native

Devices: TypeAlias = str | Sequence[str]
"""``"cuda"`` (all GPUs), ``"any"`` (host memory too), ``"cuda:0"``, ``"cpu"``, or a list."""

StrPath: TypeAlias = str | os.PathLike[str]


def ignored_names(ignore: object) -> list[str]:
    """Validate ``ignore`` and return it as a list.

    Raises:
        ValueError: If ``ignore`` is not a list of names.
    """
    if not isinstance(ignore, (list, tuple, set, frozenset)):
        raise ValueError(
            f"ignore must be a list of signatures, patterns or libraries, such as ['torch'], "
            f"not {ignore!r}"
        )
    for name in ignore:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(
                "ignore must list signatures, patterns or libraries, such as 'torch' or "
                f"'closure-captures-owner', not {name!r}"
            )
    return list(ignore)


def device_names(devices: object) -> list[str]:
    """Validate ``devices`` and return it as a list.

    Raises:
        TypeError: If ``devices`` is not a string or a list of strings.
        ValueError: If one of them is not a device.
    """
    if isinstance(devices, str):
        names = [devices]
    elif isinstance(devices, Sequence):
        names = list(devices)
    else:
        raise TypeError(f"devices must be a string or a list of strings, not {devices!r}")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"devices must be strings such as 'cuda:0', not {name!r}")
    _native.check_devices(names)
    return names
