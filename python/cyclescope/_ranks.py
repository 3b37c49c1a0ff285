"""Which of the processes of a distributed job this one is."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import Any

# What torchrun, Slurm, Open MPI, MPICH (and Intel MPI) set, the first that is there counts.
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@dataclass(frozen=True)
class Rank:
    """This process's place in a distributed job."""

    rank: int
    local_rank: int | None
    """Its number on its machine, if that is known."""
    world_size: int | None
    """How many processes there are, if that is known."""


def current_rank() -> Rank | None:
    """The rank of this process, by ``torch.distributed`` or the environment; None if it has none.

    Imports nothing and initialises nothing.
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
    """The part of a file's name that tells processes apart: rank, machine and process number."""
    rank = current_rank()
    host = re.sub(r"[^A-Za-z0-9.]+", "_", _host())[:40] or "host"
    return f"{'' if rank is None else f'rank{rank.rank}-'}{host}-{os.getpid()}"


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def _number(names: tuple[str, ...]) -> int | None:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return None
