"""Objects of other C extensions in garbage: programs that must not notice a watch.

The programs are in ``extension_programs``. Each is run bare and under a watch, and all that it
printed is compared; ``conditions.py`` does that while something else looks at them too.

usage: PYTHONPATH=python python tests/harmless/extensions.py [NAME ...] [--built FOLDER]
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from extension_programs import PROGRAMS as PROGRAMS
from extension_programs import missing as missing

ROUNDS = (2, 0, 1, 0, 2)
"""The generations that are collected, each after a run of the program."""
SLOW = {"loader_fork", "loader_spawn", "loader_persistent"}
"""Programs that start processes: one round is enough."""


def play(function: Callable[[], object], rounds: tuple[int, ...] = ROUNDS) -> None:
    """Make the garbage, collect it, and print what came of that.

    How many objects of ``multiprocessing`` are still in cycles when a program is done depends on
    when its threads ended, without a watch too.
    """
    counted = function.__name__ not in SLOW
    for generation in rounds:
        function()
        sys.stdout.flush()
        found = gc.collect(generation)
        print("collected", found if counted else found > 0)
    found = gc.collect()
    print("left", found if counted else "", len(gc.garbage), gc.get_debug(), gc.isenabled())
    sys.stdout.flush()


def main() -> None:
    import conditions
    from compiled import compile_into

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--built", default="", help="folder for modules that are compiled")
    args = parser.parse_args()
    names = [f"extensions:{name}" for name in args.names or PROGRAMS]
    with tempfile.TemporaryDirectory() as folder:
        built = args.built or folder
        compile_into(Path(built))
        sys.exit(conditions.compare_all(names, ["", "beside"], built))


if __name__ == "__main__":
    main()
