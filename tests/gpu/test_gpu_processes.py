"""What needs a process of its own: allocators, forks, and a program that never uses the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

Program: TypeAlias = Callable[..., Any]

pytestmark = pytest.mark.gpu

MIB = 2**20

LEAK_AND_FIND = """
    import gc, json, torch
    import common, cyclescope
    gc.disable()
    torch.zeros(1, device="cuda:0")
    common.load("awaitable_leak").leak("cuda:0", 64)
    before = torch.cuda.memory_allocated(0)
    (leak,) = cyclescope.find_tensor_cycles().leaks
    (buffer,) = leak.buffers
    print(json.dumps({
        "backend": torch.cuda.get_allocator_backend(),
        "settings": torch.cuda.memory._snapshot()["allocator_settings"]["expandable_segments"],
        "device": buffer.device,
        "confirmed": buffer.confirmed,
        "held": leak.bytes_held,
        "freed": leak.bytes_freed,
        "allocator": before - torch.cuda.memory_allocated(0),
    }))
"""


@pytest.mark.parametrize("expandable", [False, True], ids=["segments", "expandable segments"])
def test_the_native_allocator(program: Program, expandable: bool) -> None:
    said = program(LEAK_AND_FIND, PYTORCH_CUDA_ALLOC_CONF=f"expandable_segments:{expandable}")
    assert said == {
        "backend": "native",
        "settings": expandable,
        "device": "cuda:0",
        "confirmed": True,
        "held": 64 * MIB,
        "freed": 64 * MIB,
        "allocator": 64 * MIB,
    }


def test_the_allocator_of_the_driver(program: Program) -> None:
    """``cudaMallocAsync`` gives memory back when the stream gets there: no bytes are claimed."""
    source = LEAK_AND_FIND.replace(
        'torch.cuda.memory._snapshot()["allocator_settings"]["expandable_segments"]', "None"
    )
    said = program(source, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    assert said["backend"] == "cudaMallocAsync"
    assert (said["device"], said["confirmed"]) == ("cuda:0", True)
    assert (said["held"], said["freed"]) == (64 * MIB, None)


def test_a_forked_child_leaves_the_gpu_alone(program: Program) -> None:
    """The child collects garbage with its parent's tensors in it, asks for leaks, and ends."""
    said = program("""
        import gc, json, os, torch
        import common, cyclescope
        gc.disable()
        watch = cyclescope.observe_tensor_cycles(lambda report: None)
        torch.zeros(1, device="cuda:0")
        common.load("awaitable_leak").leak("cuda:0", 4)
        child = os.fork()
        if child == 0:
            gc.collect()
            common.load("two_nodes").leak("cpu", 1)
            gc.collect()
            leaks = cyclescope.find_tensor_cycles().leaks
            held = cyclescope.find_tensor_cycles(devices="any").leaks
            os._exit(0 if leaks == [] and held == [] else 3)
        _, status = os.waitpid(child, 0)
        gc.collect()
        watch.flush()
        (tally,) = watch.leaks
        torch.cuda.synchronize()
        print(json.dumps({"child": os.waitstatus_to_exitcode(status), "bytes": tally.bytes}))
    """)
    assert said == {"child": 0, "bytes": 4 * MIB}


def test_forked_workers_of_a_data_loader(program: Program) -> None:
    said = program("""
        import gc, json, torch
        import common, cyclescope

        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 16

            def __getitem__(self, index):
                common.load("two_nodes").leak("cpu", 1)
                gc.collect()
                return torch.full((4,), float(index))

        watch = cyclescope.observe_tensor_cycles(lambda report: None)
        torch.zeros(1, device="cuda:0")
        loader = torch.utils.data.DataLoader(
            Rows(), batch_size=4, num_workers=2, multiprocessing_context="fork"
        )
        total = sum(float(batch.to("cuda:0").sum()) for batch in loader)
        print(json.dumps({"total": total, "parent": len(watch.leaks)}))
    """)
    assert said == {"total": 4.0 * sum(range(16)), "parent": 0}


def test_a_program_that_uses_no_gpu_is_not_made_to(program: Program) -> None:
    """Neither the driver's library nor its device files appear in the process."""
    said = program("""
        import gc, json, os, torch

        def traces():
            with open("/proc/self/maps") as maps:
                mapped = {line.split()[-1] for line in maps}
            opened = set()
            for number in os.listdir("/proc/self/fd"):
                try:
                    opened.add(os.readlink(f"/proc/self/fd/{number}"))
                except OSError:
                    pass
            return sorted(
                name for name in mapped | opened
                if "libcuda.so" in name or name.startswith("/dev/nvidia")
            )

        before = traces()
        import common, cyclescope
        watch = cyclescope.warn_tensor_cycles()
        for device, mib in (("cpu", 1), ("cpu", 2)):
            common.load("awaitable_leak").leak(device, mib)
            gc.collect()
        cyclescope.find_tensor_cycles()
        found = len(cyclescope.find_tensor_cycles(devices="any").leaks)
        watch.flush()
        print(json.dumps({
            "initialised": torch.cuda.is_initialized(),
            "before": before,
            "after": traces(),
            "warned": len(watch.leaks),
        }))
    """)
    assert not said["initialised"]
    assert said["after"] == said["before"]
    assert said["warned"] == 0


def test_the_machine_has_a_driver_and_no_warning_says_otherwise(program: Program) -> None:
    said = program("""
        import json, logging
        import cyclescope
        from cyclescope import _native
        lines = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())
        logging.getLogger("cyclescope").addHandler(handler)
        cyclescope.warn_tensor_cycles()
        with open("/proc/self/maps") as maps:
            mapped = "libcuda" in maps.read()
        print(json.dumps([_native.cuda_driver_present(), lines, mapped]))
    """)
    assert said == [True, [], False]
