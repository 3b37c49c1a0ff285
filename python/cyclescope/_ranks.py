"""Ranks of a distributed job."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from cyclescope import _native, _teller
from cyclescope._native import CycleReport
from cyclescope._off import OFF

# Set by torchrun, Slurm, Open MPI, and MPICH or Intel MPI. The first that is set counts.
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@dataclass(frozen=True)
class Rank:
    """The rank of a process in a distributed job."""

    rank: int
    """The rank in the whole job."""
    local_rank: int | None
    """The rank on this machine, if known."""
    world_size: int | None
    """The number of processes, if known."""


def current_rank() -> Rank | None:
    """The rank of this process, from ``torch.distributed`` or the environment; None without one.

    Imports and initialises nothing.
    """
    local = _number(_LOCAL_RANK)
    group = process_group()
    if group is not None:
        return Rank(group.get_rank(), local, group.get_world_size())
    rank = _number(_RANK)
    return None if rank is None else Rank(rank, local, _number(_WORLD_SIZE))


def process_group() -> Any | None:
    """The module ``torch.distributed``, if the program has initialised its process group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not getattr(distributed, "is_available", bool)():
        return None
    return distributed if distributed.is_initialized() else None


def stem() -> str:
    """The part of a file name that identifies the process: rank, host name and process ID.

    With ``redact``, a hash replaces the host name.
    """
    import re

    rank = current_rank()
    host = re.sub(r"[^A-Za-z0-9.]+", "_", _host())[:40] or "host"
    if _native.redacts():
        import zlib

        host = f"host{zlib.crc32(_host().encode()):08x}"
    return f"{'' if rank is None else f'rank{rank.rank}-'}{host}-{os.getpid()}"


def to_json(report: CycleReport) -> str:
    """The report as JSON, with the current rank."""
    rank = current_rank()
    if rank is None:
        return report.to_json()
    import json

    model = json.loads(report.to_json())
    model["process"]["rank"] = rank.rank
    return json.dumps(model, ensure_ascii=False)


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
    distributed = process_group()
    if distributed is None:
        return report
    if OFF:
        return None
    mine = None if report is None or not report.leaks else to_json(report)
    ranks = distributed.get_world_size(group)
    first = distributed.get_rank(group) == 0
    texts: list[str | None] | None = [None] * ranks if first else None
    root = distributed.get_global_rank(group, 0) if group is not None else 0
    distributed.gather_object(mine, texts, dst=root, group=group)
    found = [CycleReport.from_json(text) for text in texts or () if text is not None]
    if not found:
        return None
    from cyclescope._by_rank import as_text, table

    merged = _native.merge(found)
    _teller.logger.warning(
        "reference cycles held tensors on %d of %d ranks:\n%s",
        len(found),
        ranks,
        as_text(table(found)),
    )
    return merged


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def _number(names: tuple[str, ...]) -> int | None:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return None
