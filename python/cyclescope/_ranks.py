"""The reports of a distributed job."""

from __future__ import annotations

import os
import sys
from typing import Any

from cyclescope import _native, _teller
from cyclescope._native import CycleReport
from cyclescope._off import OFF


def stem() -> str:
    """The part of a file's name that tells processes apart: rank, machine and process number.

    With ``redact`` it does not say which machine.
    """
    import re

    rank = _native.current_rank()
    host = re.sub(r"[^A-Za-z0-9.]+", "_", _host())[:40] or "host"
    if _native.redacts():
        import zlib

        host = f"host{zlib.crc32(_host().encode()):08x}"
    return f"{'' if rank is None else f'rank{rank.rank}-'}{host}-{os.getpid()}"


def gather(report: CycleReport | None, *, group: Any | None = None) -> CycleReport | None:
    """Bring the reports of all ranks to rank 0, which logs one warning for all.

    A collective operation of ``torch.distributed``, with any backend: all ranks must call it at
    the same place of the program, those without leaks too. With NCCL each must have set its device
    (``torch.cuda.set_device``), as for any other collective.

    Args:
        report: What this rank found, such as :attr:`Watch.report` or
            :attr:`StepReport.report`; None if it found nothing.
        group: The process group; by default that of all ranks.

    Returns:
        On rank 0 of the group one report of all, or None if no rank found anything. None on the
        other ranks. In a program that is not distributed, the report itself. With
        ``CYCLESCOPE_OFF`` set, which all ranks must agree on, nothing is sent, and it is None.
    """
    if not _native.is_distributed():
        return report
    if OFF:
        return None
    distributed = sys.modules["torch.distributed"]
    mine = None if report is None or not report.leaks else report.to_json()
    ranks = distributed.get_world_size(group)
    first = distributed.get_rank(group) == 0
    texts: list[str | None] | None = [None] * ranks if first else None
    root = distributed.get_global_rank(group, 0) if group is not None else 0
    distributed.gather_object(mine, texts, dst=root, group=group)
    found = [CycleReport.from_json(text) for text in texts or () if text is not None]
    if not found:
        return None
    merged = _native.merge_processes(found)
    _teller.logger.warning(
        "reference cycles held tensors on %d of %d ranks:\n%s",
        len(found),
        ranks,
        merged.table_of_processes(),
    )
    return merged


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
