"""What the benchmarks share: how a table is printed and recorded, and on what it was measured."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"


def arguments(doc: str) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("--record", action="store_true", help=f"put the table into {RESULTS.name}")
    return parser


def publish(title: str, lines: Sequence[str], *, record: bool) -> None:
    """Print a section. If asked to, put it into the results for that of this machine."""
    command = f"python {Path(sys.argv[0]).parent.name}/{Path(sys.argv[0]).name}"
    day = time.strftime("%Y-%m-%d")
    section = f"{title}\n\n`{command}` on {machine()}, {day}\n\n" + "\n".join(lines) + "\n"
    print(f"## {section}")
    if record:
        head, *sections = RESULTS.read_text(encoding="utf-8").split("\n## ")
        of_this = (f"{title}\n\n`{command}", f"` on {processor()} ")
        others = [other for other in sections if not all(part in other for part in of_this)]
        RESULTS.write_text("\n## ".join([head, *others, section]), encoding="utf-8")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table whose columns line up."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join([first, *others])} |"

    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return [line(head), line(rule), *map(line, rows)]


def duration(nanoseconds: float) -> str:
    """Three figures of a duration, in the unit that suits it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(nanoseconds) >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def machine() -> str:
    """Processor, interpreter and library versions, in one phrase."""
    versions = [f"CPython {platform.python_version()}"]
    for name in ("torch", "numpy"):
        module = sys.modules.get(name)
        if module is not None:
            versions.append(f"{name} {module.__version__}")
    return f"{processor()} ({os.cpu_count()} CPUs), {platform.system()}, {', '.join(versions)}"


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
