"""Two ranks of one program, each in a process of its own, that talk through gloo."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

TIMES = itertools.count()


@contextmanager
def group() -> Iterator[None]:
    """Joins the ranks that ``run.py`` started; the file where they meet is in the environment."""
    meeting = f"file://{os.environ['MEETING']}-{next(TIMES)}"
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()
