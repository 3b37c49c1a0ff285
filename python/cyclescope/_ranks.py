"""The reports of a distributed job."""

from __future__ import annotations

import sys
from typing import Any

from cyclescope import _log, _native
from cyclescope._native import CycleReport
from cyclescope._off import OFF
from cyclescope._system import getpid, host_name


def stem() -> str:
    """The part of a file name that identifies the process: rank, host name and process ID.

    With ``redact``, a hash replaces the host name.
    """
    rank = _native.current_rank()
    fit = (each if each.isascii() and (each.isalnum() or each == ".") else " " for each in _host())
    host = "_".join("".join(fit).split())[:40] or "host"
    if _native.redacts():
        import zlib

        host = f"host{zlib.crc32(_host().encode()):08x}"
    return f"{'' if rank is None else f'rank{rank.rank}-'}{host}-{getpid()}"


def gather(report: CycleReport | None, *, group: Any | None = None) -> CycleReport | None:
    """Gather the reports of all ranks on rank 0, which logs one warning for all of them.

    This is a collective operation of ``torch.distributed`` and works with any backend. All ranks
    must call it at the same point, including those without leaks. With NCCL, each rank must have
    set its device (``torch.cuda.set_device``), as for any collective.

    Args:
        report: The report of this rank, such as :attr:`Watch.report` or
            :attr:`StepReport.report`; None if it found nothing.
        group: The process group; by default, all ranks.

    Returns:
        On rank 0 of the group, the merged report, or None if no rank found a leak. On other ranks,
        None. In a program that is not distributed, ``report`` itself. With ``CYCLESCOPE_OFF`` set,
        which must be set on all ranks or none, nothing is sent and the result is None.
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
    _log.warning(
        "reference cycles held tensors on %d of %d ranks:\n%s",
        len(found),
        ranks,
        merged.table_of_processes(),
    )
    return merged


def _host() -> str:
    return host_name()
