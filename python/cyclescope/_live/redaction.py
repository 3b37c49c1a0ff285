"""What may be said of the program: see ``redact`` of :func:`warn_tensor_cycles`."""

from __future__ import annotations

from cyclescope import _native
from cyclescope._live.objects import name_of_class
from cyclescope._native import shown_name as shown_name
from cyclescope._native import shown_place as shown_place


def shown_error(error: BaseException) -> str:
    """An error in words; its message, which may quote what the program holds, only where it may."""
    kind = name_of_class(type(error))
    return kind if _native.redacts() else f"{kind}: {error}"
