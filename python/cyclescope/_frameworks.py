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
    """Register a class whose objects hold memory, so that cycles that hold them are found.

    The memory is read in the midst of garbage collections, where no code of the program may run. So
    this takes no functions, but the names of attributes that can be read as data: those that C code
    defines, as in Cython and nanobind, ``__slots__``, and those that each object has in its own
    dictionary. Properties in Python, and whatever else could run Python code when it is read, are
    refused. C code behind an attribute must not wait, and must not call into Python.

    What an attribute says is checked each time: without an address and a number of bytes, both
    integers other than zero, an object has no memory.

    The memory is expected to be freed with the object, or with its owner. So where objects share
    memory, ``owner`` must lead to the one that it goes with. CUDA memory is confirmed by the
    driver.

    The class stays registered, and alive, for as long as the process. To register the same class
    twice is an error, and so is a class that cyclescope knows, or one that derives from it.

    Args:
        type: The class. Classes that derive from it are read alike.
        device: The kind of device, such as ``"cuda"``, ``"cpu"``, or a name of your own in
            lowercase, which ``devices=`` accepts from then on.
        pointer: The attribute that has the address of the memory.
        nbytes: The attribute that has the size of the memory in bytes: of all that is freed with
            the object, where several look into it.
        device_index: The attribute that has the number of the device.
        dtype: The attribute that has the name of the element type, or NumPy's ``dtype``.
        shape: The attribute that has a tuple of integers.
        owner: The attribute that has the object to which the memory belongs, or None for memory of
            the object's own.

    Raises:
        TypeError: If ``type`` is no class, or an attribute cannot be read as data.
        ValueError: If ``device`` is no name for a kind of device, or the class is known.
    """
    if not isinstance(type, _class):
        raise TypeError(f"register_framework needs a class, not {type!r}")
    _native.register_framework(type, device, pointer, nbytes, device_index, dtype, shape, owner)


_class = type
