"""What the CUDA driver's word changes, proven with a stand-in for it: no GPU is needed.

Each test is a small program in a process of its own, which loads the stand-in by its path, or does
not, and leaks arrays of a stand-in for CuPy.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from support.standin.programs import Program, compile_driver, driver, program

__all__ = ["driver", "program"]

POINTER = 0x7F00_0000_0000
MIB = 2**20

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the driver is found by its ELF soname"
)

QUIET = """
import logging
logging.getLogger("cyclescope").setLevel("ERROR")  # it warns that there is no driver
"""
FIND = """
driver = Driver(sys.argv[1]){says}
fake_gpu.import_cupy()
Holder(array(device={device}))
found = buffers(cyclescope.find_tensor_cycles(devices={devices!r}))
print(json.dumps([found, driver.calls]))
"""


def find(
    program: Program, says: str, *, device: int = 0, devices: str = "cuda"
) -> list[dict[str, Any]]:
    """The buffers found where the driver says something of the array's pointer."""
    found, calls = program(FIND.format(says=says, device=device, devices=devices))
    assert calls > 0, "the driver was not asked"
    assert all(buffer["pointer"] == POINTER and buffer["bytes"] == MIB for buffer in found)
    return list(found)


def one(buffers: list[dict[str, Any]]) -> tuple[str, bool]:
    (buffer,) = buffers
    return buffer["device"], buffer["confirmed"]


@pytest.mark.parametrize("ordinal", [0, 2])
def test_device_memory_is_confirmed(program: Program, ordinal: int) -> None:
    says = f".knows(ordinal={ordinal})"
    assert one(find(program, says, device=ordinal)) == (f"cuda:{ordinal}", True)


def test_managed_memory_is_device_memory(program: Program) -> None:
    assert one(find(program, ".knows(kind='managed')")) == ("cuda:0", True)
    # Of no device in particular: the framework's word stands.
    assert one(find(program, ".knows(kind='managed', ordinal=-2)", device=1)) == ("cuda:1", True)


def test_the_driver_knows_better_which_device_it_is(program: Program) -> None:
    says = ".knows(ordinal=3)"
    assert one(find(program, says)) == ("cuda:3", True)
    assert one(find(program, says, devices="cuda:3")) == ("cuda:3", True)
    assert find(program, says, devices="cuda:0") == []


def test_a_pointer_that_the_driver_does_not_know_is_not_reported(program: Program) -> None:
    assert find(program, "") == []
    assert find(program, ".knows(kind='unknown')", devices="any") == []


def test_pinned_host_memory_is_not_on_a_gpu(program: Program) -> None:
    assert find(program, ".knows(kind='host')") == []


@pytest.mark.parametrize("result", [3, 4, 999], ids=["not initialised", "shut down", "unknown"])
def test_an_error_of_the_driver_leaves_the_word_of_the_framework(
    program: Program, result: int
) -> None:
    assert one(find(program, f".knows().fail({result})")) == ("cuda:0", False)


NAMES = """
driver = Driver(sys.argv[1]){says}
fake_gpu.import_cupy()
Holder(array())
report = cyclescope.find_tensor_cycles(devices="any")
print(json.dumps(json.loads(report.to_json())["process"].get("gpus")))
"""


@pytest.mark.parametrize(
    ("says", "names"),
    [(".knows()", ["Stand-in A", "Stand-in B"]), (".knows().fail(3)", None)],
    ids=["in use", "not initialised"],
)
def test_the_header_names_the_gpus_that_are_in_use(
    program: Program, says: str, names: list[str] | None
) -> None:
    assert program(NAMES.format(says=says)) == names


def test_a_driver_without_the_function(program: Program, tmp_path: Path) -> None:
    """No crash, and not a word on standard error of what is wrong with it."""
    old = compile_driver(tmp_path / "old.so", "-DWITHOUT_ATTRIBUTES")
    source = QUIET + FIND.format(says=".knows()", device=0, devices="cuda")
    found, calls = program(source, library=old)
    assert one(found) == ("cuda:0", False)
    assert calls == 0


def test_a_driver_that_is_not_loaded_stays_so(program: Program, tmp_path: Path) -> None:
    """Although the system's loader would find it at once."""
    for name in ("libcuda.so", "libcuda.so.1"):
        compile_driver(tmp_path / name)
    said = program(
        """
        import ctypes, logging
        logging.getLogger("cyclescope").addHandler(logging.NullHandler())
        fake_gpu.import_cupy()
        watch = cyclescope.warn_tensor_cycles()
        Holder(array())
        gc.collect()
        watch.flush()
        Holder(array())
        found = buffers(cyclescope.find_tensor_cycles())
        before = mapped("libcuda")
        ctypes.CDLL("libcuda.so.1")
        print(json.dumps([found, before, mapped("libcuda")]), flush=True)
        os._exit(0)
        """,
        LD_LIBRARY_PATH=str(tmp_path),
    )
    found, mapped, proof = said
    assert one(found) == ("cuda:0", False)
    assert not mapped
    assert proof, "the loader did not find it either, so this proves nothing"


def test_another_library_of_that_name_is_not_loaded(program: Program, tmp_path: Path) -> None:
    """The driver that the process uses is asked, not the first that the system would find."""
    compile_driver(tmp_path / "libcuda.so", "-DWITHOUT_ATTRIBUTES", soname="libcuda.so")
    said = program(
        """
        driver = Driver(sys.argv[1]).knows()
        fake_gpu.import_cupy()
        Holder(array())
        print(json.dumps([buffers(cyclescope.find_tensor_cycles()), mapped("libcuda.so")]))
        """,
        LD_LIBRARY_PATH=str(tmp_path),
    )
    assert one(said[0]) == ("cuda:0", True)
    assert not said[1]


def test_a_driver_loaded_later_is_asked_from_then_on(program: Program) -> None:
    before, after = program(
        QUIET
        + """
fake_gpu.import_cupy()
Holder(array())
before = buffers(cyclescope.find_tensor_cycles())
Driver(sys.argv[1]).knows()
Holder(array())
print(json.dumps([before, buffers(cyclescope.find_tensor_cycles())]))
"""
    )
    assert one(before) == ("cuda:0", False)
    assert one(after) == ("cuda:0", True)


def test_a_driver_that_the_program_closes_again_is_still_there(program: Program) -> None:
    found = program("""
        import _ctypes
        driver = Driver(sys.argv[1]).knows()
        fake_gpu.import_cupy()
        Holder(array())
        cyclescope.find_tensor_cycles()
        _ctypes.dlclose(driver.library._handle)
        Holder(array())
        print(json.dumps(buffers(cyclescope.find_tensor_cycles())))
    """)
    assert one(found) == ("cuda:0", True)


def test_the_watch_asks_the_driver_too(program: Program) -> None:
    seen = program("""
        driver = Driver(sys.argv[1]).knows(ordinal=1)
        fake_gpu.import_cupy()
        seen = []
        with cyclescope.observe_tensor_cycles(seen.append) as watch:
            Holder(array(device=1))
            Holder(array(ptr=fake_gpu.POINTER + 0x1000_0000))
            gc.collect()
            watch.flush()
        (report,) = seen
        print(json.dumps(buffers(report)))
    """)
    assert one(seen) == ("cuda:1", True)


def test_a_forked_child_does_not_call_the_driver(program: Program) -> None:
    """Neither in collections, of which the parent's watch knows, nor when it is asked."""
    said = program("""
        driver = Driver(sys.argv[1]).knows()
        fake_gpu.import_cupy()
        watch = cyclescope.observe_tensor_cycles(lambda report: None)
        Holder(array())
        gc.collect()
        asked = driver.calls
        Holder(array())
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            gc.collect()
            in_watch = driver.calls
            Holder(array())
            found = buffers(cyclescope.find_tensor_cycles())
            with cyclescope.observe_tensor_cycles(lambda report: None) as own:
                Holder(array())
                gc.collect()
                own.flush()
                seen = sum(leak.count for leak in own.leaks)
            said = [in_watch, driver.calls, found, seen]
            os.write(write, json.dumps(said).encode())
            os._exit(0)
        os.waitpid(child, 0)
        gc.collect()
        watch.flush()
        in_child = json.loads(os.read(read, 65536))
        print(json.dumps([asked, in_child, driver.calls > asked, watch.leaks[0].count]))
    """)
    asked, (in_watch, in_all, found, seen), parent_goes_on, parent_count = said
    assert asked > 0
    assert in_watch == asked
    assert in_all == asked
    assert one(found) == ("cuda:0", False)
    assert seen == 1
    assert parent_goes_on
    assert parent_count == 2


# --- CuPy, which these pointers come from ---


def test_arrays_on_one_block_are_one_buffer(program: Program) -> None:
    found = program("""
        Driver(sys.argv[1]).knows()
        fake_gpu.import_cupy()
        def leak():
            whole = array()
            Holder([whole, fake_gpu.ndarray(whole.data.mem)])
        leak()
        print(json.dumps(buffers(cyclescope.find_tensor_cycles())))
    """)
    assert one(found) == ("cuda:0", True)


@pytest.mark.parametrize(
    "block",
    [
        "alive = array(); Holder(fake_gpu.ndarray(alive.data.mem))",
        "Holder(fake_gpu.ndarray(fake_gpu.ForeignMemory(fake_gpu.POINTER, fake_gpu.MIB, 0)))",
        "driver.knows(0); Holder([array(ptr=0), array(size=0)])",
    ],
    ids=["a live array shares it", "of unknown origin", "freed and empty"],
)
def test_a_block_that_is_not_claimed(program: Program, block: str) -> None:
    found = program(f"""
        driver = Driver(sys.argv[1]).knows()
        fake_gpu.import_cupy()
        {block}
        print(json.dumps(buffers(cyclescope.find_tensor_cycles())))
    """)
    assert found == []


def test_memory_that_is_not_cupys_belongs_to_its_owner(program: Program) -> None:
    said = program("""
        Driver(sys.argv[1]).knows()
        fake_gpu.import_cupy()
        class Owner: pass
        def leak(owner):
            memory = fake_gpu.UnownedMemory(fake_gpu.POINTER, fake_gpu.MIB, owner, 0)
            Holder(fake_gpu.ndarray(memory))
        alive = Owner()
        leak(alive)
        first = buffers(cyclescope.find_tensor_cycles())
        leak(Owner())
        print(json.dumps([first, buffers(cyclescope.find_tensor_cycles())]))
    """)
    assert said[0] == []
    assert one(said[1]) == ("cuda:0", True)


def test_an_import_that_is_half_done_is_tried_again(program: Program) -> None:
    said = program("""
        from types import ModuleType
        Driver(sys.argv[1]).knows()
        counts = []
        for done in ({"cupy": ModuleType("cupy")}, {"torch._C": ModuleType("torch._C")},
                     {"numpy": ModuleType("numpy")}, fake_gpu.modules()):
            sys.modules.update(done)
            Holder(array())
            counts.append(len(cyclescope.find_tensor_cycles().leaks))
        print(json.dumps(counts))
    """)
    assert said == [0, 0, 0, 1]


def test_a_lazy_module_is_not_imported(program: Program, tmp_path: Path) -> None:
    """The first attribute asked of a lazy module imports it; nothing is asked of it."""
    (tmp_path / "cupy.py").write_text("raise SystemExit('cyclescope imported me')\n")
    said = program(f"""
        import importlib.util
        spec = importlib.util.spec_from_file_location("cupy", {str(tmp_path / "cupy.py")!r})
        spec.loader = importlib.util.LazyLoader(spec.loader)
        sys.modules["cupy"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["cupy"])
        lazy = type(sys.modules["cupy"]).__name__
        Holder(array())
        found = buffers(cyclescope.find_tensor_cycles(devices="any"))
        print(json.dumps([found, lazy, type(sys.modules["cupy"]).__name__]))
    """)
    assert said == [[], "_LazyModule", "_LazyModule"]


def test_an_import_function_of_the_program_is_not_called(program: Program) -> None:
    calls = program("""
        import builtins
        Driver(sys.argv[1]).knows()
        fake_gpu.import_cupy()
        fake_gpu.count_like_pytorch()
        calls = []
        original = builtins.__import__
        def imported(name, *args):
            calls.append(name)
            return original(name, *args)
        with cyclescope.observe_tensor_cycles(lambda report: None):
            Holder(array())
            builtins.__import__ = imported
            gc.collect()
            builtins.__import__ = original
        print(json.dumps(calls))
    """)
    assert calls == []


# --- The allocator's own numbers ---

TWO_LEAKS = """
Driver(sys.argv[1]).knows().knows(fake_gpu.POINTER + 0x1000_0000)
fake_gpu.import_cupy()
fake_gpu.count_like_pytorch({backend!r})
{begin}
class Other(Holder): pass
Holder(array())
Other([array(ptr=fake_gpu.POINTER + 0x1000_0000, size=3 * fake_gpu.MIB)])
{look}
print(json.dumps([[leak.bytes_held, leak.bytes_freed] for leak in report.leaks]))
"""
LOOK = "report = cyclescope.find_tensor_cycles()"
WATCH = "gc.collect(); watch.stop(); (report,) = reports"
BEGIN = """
reports = []
watch = cyclescope.observe_tensor_cycles(reports.append)
"""


@pytest.mark.parametrize(("begin", "look"), [("", LOOK), (BEGIN, WATCH)], ids=["find", "watch"])
def test_each_leak_of_one_garbage_has_its_own_bytes(
    begin: str, look: str, program: Program
) -> None:
    said = program(TWO_LEAKS.format(begin=begin, backend="native", look=look))
    assert said == [[3 * MIB, 3 * MIB], [MIB, MIB]]


@pytest.mark.parametrize(("begin", "look"), [("", LOOK), (BEGIN, WATCH)], ids=["find", "watch"])
def test_numbers_of_an_allocator_that_frees_later_are_not_used(
    begin: str, look: str, program: Program
) -> None:
    said = program(TWO_LEAKS.format(begin=begin, backend="cudaMallocAsync", look=look))
    assert said == [[3 * MIB, None], [MIB, None]]
