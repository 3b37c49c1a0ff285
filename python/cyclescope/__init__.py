"""Finds the reference cycles that hold GPU memory.

Call :func:`warn_tensor_cycles` at training start. Whenever the garbage collector then frees a CUDA
tensor that only a reference cycle kept alive, a warning says how much memory it held, which
reference to remove, and where the page with the details is.
"""

import os
import sys

# Reads the switch.
from cyclescope import _off as _off
from cyclescope._find import assert_no_tensor_cycles as assert_no_tensor_cycles
from cyclescope._find import find_tensor_cycles as find_tensor_cycles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cyclescope._public import *  # noqa: F403
    from cyclescope._public import __all__ as __all__
else:
    # Imported with the first use (PEP 562), so that a program that has the import only pays next
    # to nothing for it.
    def __getattr__(name):
        # Modules of the package are asked for here too while they are being imported.
        if not name.startswith("_") or name == "__all__":
            from cyclescope import _public

            if name == "__all__" or name in _public.__all__:
                globals()[name] = value = getattr(_public, name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return __getattr__("__all__")


# Where the interpreter was told to trace allocations from its start, it does so without importing
# the module that answers for them; everywhere else the program has imported it.
if "tracemalloc" in sys._xoptions or os.environ.get("PYTHONTRACEMALLOC"):
    import _tracemalloc  # noqa: F401
