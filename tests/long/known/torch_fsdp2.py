"""torch.distributed.fsdp: a sharded module and its state refer to each other."""

import gc

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def leak() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(torch.nn.Linear(512, 512), mesh=init_device_mesh("cpu", (1,)))
    gc.collect()  # what sharding leaves, another cycle
    dist.destroy_process_group()
    del model


def remedied() -> None:
    leak()
    gc.collect()
