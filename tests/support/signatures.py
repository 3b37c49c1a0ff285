"""What cyclescope calls the leak of each fixture, as JSON: signature and steps by fixture.

    python -m support.signatures [--as-scripts] [--without-torch]

Run by each interpreter at hand, so that their tables can be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
from pathlib import Path
from typing import Any
from unittest import SkipTest


def table(as_scripts: bool) -> dict[str, list[Any]]:
    import common
    import cyclescope

    fixtures = {}
    for name in common.names():
        with contextlib.suppress(SkipTest):
            fixtures[name] = common.load(name)
    found: dict[str, list[Any]] = {}
    with common.collector_paused():
        gc.freeze()  # what PyTorch brought has nothing to do with this, and each look would pass it
        for name, fixture in fixtures.items():
            if fixture.EXPECTED.leaks:
                if as_scripts:
                    run_as_script(Path(common.__file__).parent / f"{name}.py")
                else:
                    fixture.leak("cpu")
                found[name] = [
                    [leak.signature, [[s.type_name, s.label, s.edge] for s in leak.cycle]]
                    for leak in cyclescope.find_tensor_cycles(devices="any").leaks
                ]
    return found


def run_as_script(file: Path) -> None:
    """Runs a program in ``__main__``, as the interpreter does with the script that it is given."""
    main = vars(sys.modules["__main__"])
    main["__file__"] = str(file)
    sys.argv = [str(file), "--iterations", "1"]
    exec(compile(file.read_text(), str(file), "exec"), main)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--as-scripts", action="store_true", help="run, do not import, them")
    parser.add_argument("--without-torch", action="store_true", help="use NumPy, as if alone")
    args = parser.parse_args()
    if args.without_torch:
        sys.modules["torch"] = None  # type: ignore[assignment]
    print(json.dumps(table(args.as_scripts)))
