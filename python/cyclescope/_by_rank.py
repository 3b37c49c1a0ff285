"""A table of leaks with one column per rank."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from cyclescope._native import CycleReport, Leak

MIB = 2**20


@dataclass
class Row:
    """One leak in all processes."""

    leak: Leak
    bytes_held: dict[str, int] = field(default_factory=dict)
    """By process."""

    @property
    def total(self) -> int:
        return sum(self.bytes_held.values())


@dataclass
class Table:
    """Leaks, largest first, by process, in rank order."""

    columns: list[str]
    rows: list[Row]


def table(reports: Sequence[CycleReport]) -> Table:
    """Tabulate the leaks of reports by rank. Each process without a rank has its own column."""
    columns: dict[str, tuple[int, int, str]] = {}
    rows: dict[str, Row] = {}
    for place, report in enumerate(reports):
        process = json.loads(report.to_json())["process"]
        rank = process["rank"]
        name = f"rank {rank}" if rank is not None else f"pid {process['pid']} on {process['host']}"
        columns.setdefault(name, (rank is None, rank or 0, f"{place:9}"))
        for leak in report.leaks:
            row = rows.setdefault(leak.signature, Row(leak))
            row.bytes_held[name] = row.bytes_held.get(name, 0) + leak.bytes_held
    ordered = sorted(columns, key=columns.__getitem__)
    return Table(ordered, sorted(rows.values(), key=lambda row: (-row.total, row.leak.signature)))


def as_text(leaks: Table) -> str:
    """The table as text: one line of sizes in MiB per leak, then one line describing each leak."""
    if not leaks.rows:
        return f"no leaks in {len(leaks.columns)} processes"
    heads = ["leak, MiB held", *leaks.columns, "total"]
    lines = [
        [
            row.leak.signature,
            *(_mib(row, name) for name in leaks.columns),
            f"{row.total / MIB:,.1f}",
        ]
        for row in leaks.rows
    ]
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
    texts = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in [heads, *lines]
    ]
    return "\n".join(
        [*texts, "", *(f"{row.leak.signature}  {_what(row.leak)}" for row in leaks.rows)]
    )


def as_html(leaks: Table) -> str:
    """The table as HTML."""
    heads = "".join(f"<th scope=col>{html.escape(name)}" for name in [*leaks.columns, "total"])
    body = "".join(
        f"<tr><th scope=row><code>{row.leak.signature}</code> {html.escape(row.leak.summary)}"
        + "".join(f"<td>{_mib(row, name)}" for name in leaks.columns)
        + f"<td>{_total(row)}\n"
        for row in leaks.rows
    )
    return (
        "<section id=ranks><h2>MiB held, by rank</h2>\n"
        f"<table>\n<tr><th scope=col>leak{heads}\n{body}</table></section>\n"
    )


def with_section(page: str, section: str) -> str:
    """Insert a section before the leaks of a page, or else at its end."""
    # The program's text is escaped, so the first match is markup of the page.
    for mark in ("<main", "</body>"):
        before, found, after = page.partition(mark)
        if found:
            return f"{before}{section}{found}{after}"
    return page + section


def _mib(row: Row, name: str) -> str:
    held = row.bytes_held.get(name)
    return "-" if held is None else f"{held / MIB:,.1f}"


def _total(row: Row) -> str:
    return f"{row.total / MIB:,.1f}"


def _what(leak: Leak) -> str:
    cut = leak.cuts[0] if leak.cuts else None
    where = f" ({cut.location})" if cut is not None and cut.location is not None else ""
    return f"{leak.summary}{where}"
