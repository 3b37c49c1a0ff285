"""A job of four ranks, three of which leak: rank 0 logs one warning for all of them."""

import gc

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import cyclescope


class Trainer:
    def __init__(self, mebibytes):
        self.batch = torch.empty(mebibytes, 2**18)
        self.on_step = lambda: self.batch.sum()


def train(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)
    gc.disable()
    if rank > 0:
        Trainer(rank)
    cyclescope.gather(cyclescope.find_tensor_cycles(devices="any"))
    dist.destroy_process_group()


if __name__ == "__main__":
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(os.path.join(folder, "store"),), nprocs=4)
