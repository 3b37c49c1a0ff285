"""Find the reference cycles that hold GPU memory.

Call :func:`warn_tensor_cycles` at training start. When the garbage collector frees a CUDA tensor
that only a reference cycle kept alive, a warning says how much memory the cycle held, which
reference to remove, and where to find the HTML page with the details.

PYTEST_DONT_REWRITE
"""

# The docstring ends with pytest's marker: `run -m pytest` imports this before it can be rewritten.
import _thread
import os
import sys

# Before Python 3.12, which knows no such function, the native module refuses on first use.
if not getattr(_thread, "_is_main_interpreter", lambda: True)():
    raise ImportError(
        "cyclescope works in the main interpreter only, not in sub-interpreters, because each has "
        "a garbage collector of its own."
    )

# Reads `CYCLESCOPE_OFF`.
from cyclescope import _off as _off
from cyclescope._find import assert_no_tensor_cycles as assert_no_tensor_cycles
from cyclescope._find import find_tensor_cycles as find_tensor_cycles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cyclescope._native import __version__ as __version__
    from cyclescope._public import *  # noqa: F403
    from cyclescope._public import __all__ as __all__
else:
    # Imported on first use (PEP 562), so that `import cyclescope` alone costs next to nothing.
    def __getattr__(name):
        if name == "__version__":
            from cyclescope import _native

            return _native.__version__
        # The import system also looks up submodules here while it imports them.
        if not name.startswith("_") or name == "__all__":
            from cyclescope import _public

            if name == "__all__" or name in _public.__all__:
                globals()[name] = value = getattr(_public, name)
                return value
            from cyclescope import _suggest

            raise _suggest.no_name(__name__, name, _public.__all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return __getattr__("__all__")


# With `-X tracemalloc` the interpreter traces without importing the module that we query. A program
# that starts tracing itself has imported it.
if "tracemalloc" in sys._xoptions or os.environ.get("PYTHONTRACEMALLOC"):
    import _tracemalloc  # noqa: F401

if os.environ.get("CYCLESCOPE_SIGNAL", "").strip() and not _off.OFF:
    from cyclescope._live.on_signal import follow_environment

    follow_environment()
    del follow_environment
