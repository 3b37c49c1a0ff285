"""Pinned and shared host memory, which are devices, and backends outside of PyTorch."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import cyclescope
from support.nodes import Holder
from support.processes import run
from support.standin.programs import Program, driver, program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

__all__ = ["driver", "program"]

pytestmark = pytest.mark.usefixtures("collector_paused")


def rows(report: Any) -> list[Any]:
    return sorted((b.device, b.bytes) for leak in report.leaks for b in leak.buffers)


def leak() -> None:
    Holder([torch.zeros(1000), torch.zeros(2000).share_memory_()])


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ("any", ["cpu", "shared"]),
        ("cpu", ["cpu", "shared"]),
        ("shared", ["shared"]),
        (["shared", "pinned"], ["shared"]),
        ("pinned", []),
        ("gpu", []),
        ("cuda", []),
    ],
)
@pytest.mark.parametrize("how", ["found", "watched"])
def test_shared_memory_is_a_device(devices: Any, found: list[str], how: str) -> None:
    leak()
    if how == "found":
        said = rows(cyclescope.find_tensor_cycles(devices=devices, frozen=False))
    else:
        reports: list[Any] = []
        with cyclescope.observe_tensor_cycles(reports.append, devices=devices) as watch:
            gc.collect()
            watch.flush()
        said = [row for report in reports for row in rows(report)]
    sizes = {"cpu": 4000, "shared": 8000}
    assert said == [(device, sizes[device]) for device in found]


def test_shared_memory_that_is_alive() -> None:
    alive = torch.zeros(1000).share_memory_()
    Holder([alive[:10], alive.numpy()])
    assert cyclescope.find_tensor_cycles(devices="shared", frozen=False).leaks == []


def test_shared_memory_and_arrays_on_it_count_once() -> None:
    kept = torch.zeros(12345).share_memory_()
    views = [kept.numpy(), kept[5:], memoryview(kept.numpy())]
    heap = cyclescope.heap()
    ours = [(b.device, b.bytes) for b in heap.buffers if b.bytes == 4 * 12345]
    assert ours == [("shared", 4 * 12345)]
    assert heap.device_bytes == 0
    assert len(views) == 3


def test_what_another_process_sent() -> None:
    said = run("""
        import gc, json
        import torch, torch.multiprocessing as multiprocessing
        import cyclescope

        class Holder:
            def __init__(self, held):
                self.held, self.me = held, self

        def send(queue, done):
            queue.put(torch.ones(5000))
            done.wait()

        if __name__ == "__main__":
            gc.disable()
            context = multiprocessing.get_context("fork")
            queue, done = context.Queue(), context.Event()
            child = context.Process(target=send, args=(queue, done))
            child.start()
            Holder(queue.get())
            done.set()
            child.join()
            report = cyclescope.find_tensor_cycles(devices="shared", frozen=False)
            print(json.dumps([[b.device, b.bytes] for l in report.leaks for b in l.buffers]))
    """)
    assert said == [["shared", 20000]]


PINNED = """
import torch
Driver(sys.argv[1]).knows(5)
driver = Driver(sys.argv[1])
def pinned(count):
    tensor = torch.zeros(count)
    driver.knows(tensor.data_ptr(), kind="host")
    return tensor
def rows(devices):
    report = cyclescope.find_tensor_cycles(devices=devices, frozen=False)
    return sorted([b.device, b.bytes, b.confirmed] for l in report.leaks for b in l.buffers)
"""


@pytest.mark.parametrize(
    ("devices", "found"),
    [("pinned", ["pinned"]), ("any", ["cpu", "pinned"]), ("shared", []), ("cuda", [])],
)
def test_pinned_memory_is_a_device(program: Program, devices: str, found: list[str]) -> None:
    said = program(
        PINNED
        + f"""
Holder([pinned(1000), torch.zeros(2000)])
print(json.dumps(rows({devices!r})))
"""
    )
    of = {"cpu": ["cpu", 8000, False], "pinned": ["pinned", 4000, True]}
    assert said == [of[device] for device in found]


def test_pinned_memory_and_arrays_on_it_count_once(program: Program) -> None:
    said = program(
        PINNED
        + """
kept = pinned(12345)
views = [kept.numpy(), kept[5:]]
heap = cyclescope.heap()
ours = [[b.device, b.bytes] for b in heap.buffers if b.bytes == 4 * 12345]
print(json.dumps([ours, heap.device_bytes]))
"""
    )
    assert said == [[["pinned", 4 * 12345]], 0]


def test_least_bytes_are_those_of_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CYCLESCOPE_MIN_BYTES")
    with cyclescope.warn_tensor_cycles(devices="any") as watch:
        leak()
        gc.collect()
        watch.flush()
        (tally,) = watch.leaks
        assert not tally.reported


def test_the_name_of_a_backend_outside_of_pytorch() -> None:
    said = run("""
        import json, torch
        import cyclescope
        from cyclescope._devices import device_names

        said = []
        for name in ("mychip", "mychip:1"):
            try:
                device_names(name)
            except ValueError as error:
                said.append(str(error)[:20])
        torch.utils.rename_privateuse1_backend("mychip")
        said.append(device_names(["mychip", "mychip:1", torch.device("mychip:0")]))
        try:
            device_names("mychjp:1")
        except ValueError as error:
            said.append(str(error).partition("; ")[2])
        print(json.dumps(said))
    """)
    assert said[2:] == [["mychip", "mychip:1", "mychip:0"], "did you mean 'mychip:1'?"]
    assert len(said) == 4
