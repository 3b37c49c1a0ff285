"""What the program has imported.

Only what is in a module's dictionary is read. Asked for anything else, a module may run the
program's code: a stand-in imports the module itself (``importlib.util.LazyLoader``), or raises
(a ``__getattr__`` of a stub).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def modules() -> dict[str, Any]:
    """The imported modules; none if the program has put something else in their place."""
    found = getattr(sys, "modules", None)
    return found if isinstance(found, dict) else {}


_namespace = vars(ModuleType)["__dict__"].__get__


def imported(module: str, name: str) -> Any | None:
    """What an imported module has under a name; None if it is not imported or has nothing there."""
    found = modules().get(module)
    if found is None or not issubclass(type(found), ModuleType):
        return None
    return _namespace(found).get(name)


def imported_torch() -> Any | None:
    """PyTorch, if the program has imported it, and to the end."""
    if imported("torch", "_C") is None:
        return None
    spec = imported("torch", "__spec__")
    return None if getattr(spec, "_initializing", False) else sys.modules["torch"]
