"""One program of ``programs/`` in a process of its own; the last line printed is JSON.

    python child.py bare|watch PROGRAM

``bare`` runs it as it is. Then it runs it with the collector off, and says which leaks it leaves;
and runs it again, removes the references that these leaks name, found in the heap by name alone,
and says which leaks are left all the same. ``watch`` runs it under a watch.
"""

from __future__ import annotations

import gc
import importlib
import json
import random
import sys
import weakref
from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any

import numpy
import torch
import torch._dynamo  # what the first optimizer imports leaks, once a process; see known.json

import cyclescope
from support import heap_by_name

Leaks = list[dict[str, Any]]


def bare(run: Callable[[], list[float]]) -> dict[str, Any]:
    results = run()
    gc.collect()
    gc.disable()
    run()
    leaks = found()
    return {"results": results, "leaks": leaks, "cut": cut(run, leaks) if leaks else None}


def watch(run: Callable[[], list[float]]) -> dict[str, Any]:
    told: list[cyclescope.Leak] = []
    with cyclescope.observe_tensor_cycles(lambda report: told.extend(report.leaks), devices="any"):
        results = run()
        gc.collect()
    return {"results": results, "leaks": list({e.signature: as_data(e) for e in told}.values())}


def cut(run: Callable[[], list[float]], leaks: Leaks) -> dict[str, Any]:
    """What is freed when the references that the leaks name are removed."""
    gc.freeze()  # from now on gc.get_objects() has what is new
    cuts = dict.fromkeys((owner, edge) for leak in leaks for owner, edge in leak["cuts"])
    run()
    new = gc.get_objects()  # none of those that are made here
    # Found all at once, as references of one name may be several cuts.
    owners = {
        cut: [thing for thing in new if thing is not cuts and has(thing, *cut)] for cut in cuts
    }
    tensors = [weakref.ref(thing) for thing in new if isinstance(thing, torch.Tensor)]
    before = alive(tensors)
    del new
    cannot = []
    for (owner, edge), things in owners.items():
        if not things:
            cannot.append(f"nothing in the heap is called {owner} and has {edge}")
        while things:
            try:
                sever(things.pop(), edge)
            except (TypeError, AssertionError, AttributeError) as error:
                cannot.append(f"{edge} of {owner} cannot be removed: {error}")
                things.clear()
    freed = before - alive(tensors)
    return {"freed": freed, "left": [leak["signature"] for leak in found()], "cannot": cannot}


def alive(tensors: list[weakref.ref[torch.Tensor]]) -> int:
    return sum(tensor() is not None for tensor in tensors)


def has(thing: Any, owner: str, edge: str) -> bool:
    """True if a report calls the object so, and it has a reference of this name of its own."""
    if not heap_by_name.is_named(thing, owner):
        return False
    if not edge.startswith(".") or isinstance(thing, type):
        return heap_by_name.refers(thing, edge)
    return any(edge[1:] in stored for stored in attributes(thing)) or is_member(thing, edge[1:])


def attributes(thing: Any) -> list[dict[str, Any]]:
    """The dicts in which an object, which may be a module, has its attributes."""
    stored = getattr(thing, "__dict__", {})
    return [stored, *(stored.get(name, {}) for name in ("_modules", "_parameters", "_buffers"))]


def is_member(thing: Any, name: str) -> bool:
    """True for an attribute in ``__slots__``, or in the structure of a class written in C."""
    declared = [vars(base)[name] for base in type(thing).__mro__ if name in vars(base)]
    return bool(declared) and isinstance(declared[0], MemberDescriptorType) and hasattr(thing, name)


def sever(thing: Any, edge: str) -> None:
    for stored in [] if isinstance(thing, type) else attributes(thing):
        if edge.startswith(".") and edge[1:] in stored:
            del stored[edge[1:]]
            return
    heap_by_name.sever(thing, edge)


def found() -> Leaks:
    """All leaks; some are seen only when others, which C++ held them by, are gone."""
    leaks: dict[str, dict[str, Any]] = {}
    while new := cyclescope.find_tensor_cycles(devices="any").leaks:
        for leak in new:
            leaks.setdefault(leak.signature, as_data(leak))
    return list(leaks.values())


def owner(leak: cyclescope.Leak) -> str | None:
    """Whose the leak is said to be; None for the program's own."""
    if leak.library:
        return leak.library.name
    return leak.known.library if leak.known else None


def as_data(leak: cyclescope.Leak) -> dict[str, Any]:
    return {
        "signature": leak.signature,
        "summary": leak.summary,
        "pattern": leak.pattern,
        "known": leak.known.name if leak.known else None,
        "owner": owner(leak),
        "cuts": [(cut.owner, cut.edge) for cut in leak.cuts],
        "proven": all(cut.proven for cut in leak.cuts),
    }


def main(mode: str, program: str) -> None:
    module = importlib.import_module(program)
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    gc.collect()
    done = watch(module.run) if mode == "watch" else bare(module.run)
    print("\n" + json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
