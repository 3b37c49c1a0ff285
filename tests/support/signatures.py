"""What cyclescope says of the leak of each fixture, as JSON: signature, steps, cuts and words.

    python -m support.signatures [--as-scripts] [--without-torch] [--varied COUNT]

Run by each interpreter at hand, so that their tables can be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

if TYPE_CHECKING:
    import cyclescope


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
                found[name] = said(cyclescope.find_tensor_cycles(devices="any", frozen=False))
    return found


def said(report: cyclescope.CycleReport) -> list[Any]:
    """What is said of each leak that has to be the same everywhere."""
    return [
        [
            leak.signature,
            [[step.type_name, step.label, step.edge] for step in leak.cycle],
            [[cut.owner, cut.edge, cut.proven] for cut in leak.cuts],
            leak.pattern,
            leak.summary,
            leak.advice,
        ]
        for leak in report.leaks
    ]


def table_of_varied(count: int) -> dict[str, list[Any]]:
    """The same of so many programs of ``support.varied``, without exception groups."""
    import numpy

    import cyclescope
    from support.varied import varied

    found: dict[str, list[Any]] = {}
    for program in map(varied, range(count)):
        if program.shape != "exception group":
            gc.disable()
            module = program.load(lambda: numpy.zeros(2048))
            module.leak()
            found[str(program.number)] = said(
                cyclescope.find_tensor_cycles(devices="any", frozen=False)
            )
            vars(module).clear()
            gc.collect()
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
    parser.add_argument("--varied", type=int, help="of so many varied programs, not the fixtures")
    args = parser.parse_args()
    if args.without_torch:
        sys.modules["torch"] = None  # type: ignore[assignment]
    made = table_of_varied(args.varied) if args.varied else table(args.as_scripts)
    print(json.dumps(made, indent=1))
