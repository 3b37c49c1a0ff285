"""Registration of classes whose objects have memory."""

from __future__ import annotations

from cyclescope import _native


def register_framework(
    type: type,
    *,
    device: str,
    pointer: str,
    nbytes: str,
    device_index: str | None = None,
    dtype: str | None = None,
    shape: str | None = None,
    owner: str | None = None,
) -> None:
    """Register a class whose objects hold memory, so that cycles that hold these objects are found.

    The memory is read during garbage collections, when no code of the program may run. Therefore
    this function takes no functions, but the names of attributes that can be read as data: those
    that C code defines (also with Cython or nanobind), ``__slots__``, and those in the objects' own
    dictionaries. Properties written in Python, and anything else that could run Python code when it
    is read, are refused. C code behind an attribute must not wait, and must not call into Python.

    The values are checked each time. An object has memory only if its address and its number of
    bytes are both Python integers (``int``, not NumPy's) other than zero.

    The memory must be freed with the object, or with its owner. If objects share memory, ``owner``
    must lead to the object whose end frees it. The driver confirms CUDA memory.

    The class stays registered, and alive, until the process ends. It is an error to register a
    class twice, or a class that cyclescope already knows or that derives from one.

    Args:
        type: The class. Classes that derive from it are read in the same way.
        device: The kind of device, such as ``"cuda"``, ``"cpu"``, or a name of your own in
            lowercase, which ``devices=`` accepts from then on.
        pointer: The attribute that has the address of the memory.
        nbytes: The attribute that has the size of the memory in bytes. If several objects are views
            of the memory, it is the size of all that is freed with the object.
        device_index: The attribute that has the number of the device.
        dtype: The attribute that has the name of the element type, or NumPy's ``dtype``.
        shape: The attribute that has a tuple of integers.
        owner: The attribute that has the object to which the memory belongs, or None if it belongs
            to the object itself.

    Raises:
        TypeError: If ``type`` is not a class, or an attribute cannot be read as data.
        ValueError: If ``device`` is not a name for a kind of device, or the class is already known.
    """
    if not isinstance(type, _class):
        raise TypeError(f"register_framework needs a class, not {type!r}")
    names = {"pointer": pointer, "nbytes": nbytes, "device_index": device_index}
    names |= {"dtype": dtype, "shape": shape, "owner": owner}
    if not isinstance(device, str):
        raise TypeError(f'device is the name of a kind of device, such as "cuda", not {device!r}')
    for argument, name in names.items():
        if not isinstance(name, str) and (name is not None or argument in ("pointer", "nbytes")):
            raise TypeError(f"{argument} is the name of an attribute, not {name!r}")
    if not _is_kind(device):
        raise ValueError(
            f'device: "{device}" is not a kind of device: use "cuda", "cpu", or a name of your own '
            "in lowercase; device_index names the attribute that has the number"
        )
    _native.register_framework(type, device, pointer, nbytes, device_index, dtype, shape, owner)
    registered.add(device)


_class = type

registered: set[str] = set()
"""The kinds of devices that registered classes have memory on."""

SEVERAL = ("any", "gpu", "meta")
"""Names that stand for devices of several kinds, or for none."""


def _is_kind(name: str) -> bool:
    letters = name.replace("_", "a")
    is_name = letters.isascii() and letters.isalnum() and letters == letters.lower()
    return is_name and name[0].isalpha() and name not in SEVERAL
