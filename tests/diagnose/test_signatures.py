"""Is the same leak of the same program the same bug on every version of CPython?

Each fixture runs under every interpreter at hand; what it reports must be equal, step by step.
The interpreters are those of `make test-matrix`, those of pyenv, and those that the environment
variable ``OTHER_PYTHONS`` names (separated as in ``PATH``); NumPy has to be installed there.
The fixtures about PyTorch are compared with those that have the same version of it.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import common
import cyclescope
from support import processes
from support.marks import CLOSE_DROPS_VARIABLES

ROOT = Path(__file__).parents[2]

Table = dict[str, list[list[Any]]]
"""Of each fixture, what is said of each leak: signature, steps, cuts, pattern, summary, advice."""

RECORDED = Path(__file__).with_name("said.json")
"""The table of the fixtures that need no PyTorch. ``APPROVE_SAID=1`` approves a new one."""

VERSIONS = """
import sys, numpy
assert sys.version_info >= (3, 10)
try:
    import torch
except ImportError:
    print(None)
else:
    print(torch.__version__)
"""


def interpreters() -> dict[Path, str]:
    """Every other Python that could be asked, and which PyTorch it has."""
    found = [Path(name) for name in os.environ.get("OTHER_PYTHONS", "").split(os.pathsep)]
    found += sorted((ROOT / ".venvs").glob("*/bin/python"))
    if shutil.which("pyenv"):
        root = Path(run(["pyenv", "root"]).strip())
        versions = run(["pyenv", "versions", "--bare"]).split()
        found += [root / "versions" / version / "bin" / "python" for version in versions]
    able = {python: torch_of(python) for python in found if python.is_file()}
    return {python: torch for python, torch in able.items() if torch is not None}


@functools.cache
def torch_of(python: Path) -> str | None:
    """Version of the PyTorch that an interpreter has; None for one that cannot be asked."""
    done = subprocess.run(
        [str(python), "-c", VERSIONS], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


def run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def table(python: Path | str, *options: str, package: Path) -> Table:
    """What an interpreter reports of each fixture."""
    path = os.pathsep.join(map(str, (package, ROOT / "tests", ROOT / "fixtures")))
    command = [str(python), "-m", "support.signatures", *options]
    said: Table = json.loads(run(command, PYTHONPATH=path))
    return said


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is: one binary serves all versions."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(Path(cyclescope.__file__).parent, folder / "cyclescope")
    return folder


@pytest.mark.long  # `make test-words` runs it; the recorded words are compared in each run
@pytest.mark.timeout(1200)  # with PyTorch on four versions it is imported eight times
def test_signatures_are_equal_on_all_versions(package: Path) -> None:
    others = interpreters()
    if not others:
        pytest.skip(
            "needs another Python with NumPy beside the running one: "
            "run `make test-matrix` first, or set OTHER_PYTHONS"
        )
    own_torch = torch_of(Path(sys.executable))
    own = {
        options: table(sys.executable, *options, package=package)
        for options in ((), ("--without-torch",))
    }
    for python, torch in others.items():
        options = () if torch == own_torch else ("--without-torch",)
        found = table(python, *options, package=package)
        assert found.keys() == own[options].keys()
        assert len(found) > 20
        for name, leaks in own[options].items():
            assert found[name] == leaks, f"{name} on {python} and {sys.executable}"


@pytest.mark.skipif(not CLOSE_DROPS_VARIABLES, reason="the advice on generators is another here")
def test_what_is_said_is_what_is_recorded(package: Path) -> None:
    """So each Python says it in the same words, also where there is only one to ask."""
    found = table(sys.executable, "--without-torch", package=package)
    if os.environ.get("APPROVE_SAID"):
        RECORDED.write_text(written(found))
    recorded: Table = json.loads(RECORDED.read_text())
    assert found.keys() == recorded.keys()
    for name, leaks in recorded.items():
        assert found[name] == leaks, name


def written(said: Table) -> str:
    """A leak to a line."""
    leaks = {
        name: ",\n".join(f"  {json.dumps(leak, ensure_ascii=False)}" for leak in each)
        for name, each in said.items()
    }
    programs = ",\n".join(f" {json.dumps(name)}: [\n{each}\n ]" for name, each in leaks.items())
    return f"{{\n{programs}\n}}\n"


@pytest.mark.long
def test_signatures_are_equal_in_a_script_and_in_a_module(package: Path) -> None:
    """The same bug, whether its file is run or imported."""
    imported = table(sys.executable, package=package)
    as_scripts = table(sys.executable, "--as-scripts", package=package)
    assert signatures(imported) == signatures(as_scripts)


def test_each_fixture_is_a_bug_of_its_own(package: Path) -> None:
    said = signatures(table(sys.executable, package=package))
    named = [name for leaks in said.values() for name in leaks]
    assert len(named) == len(set(named)) > 20


def signatures(said: Table) -> dict[str, list[str]]:
    return {name: [leak[0] for leak in leaks] for name, leaks in said.items()}


class Stage:
    def __init__(self, held: object) -> None:
        self.held = held
        self.next: object = self


def ring(length: int) -> cyclescope.Leak:
    first = last = Stage(numpy.zeros(2**16))
    for _ in range(length - 1):
        last.next = last = Stage(None)
    last.next = first
    del first, last
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    return leak


@pytest.mark.parametrize("length", [3, 100, 900, 1100])
def test_a_ring_is_the_same_bug_at_any_length(length: int) -> None:
    with common.collector_paused():
        assert ring(length).signature == ring(2).signature


def signature_of(make: Callable[[], object]) -> str:
    make()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    return leak.signature


METRIC = """
class Metric:
    def __init__(self, held, names):
        self.held = held
        for name in names:
            setattr(self, name, self.wrapped(name))

    def wrapped(self, name):
        return lambda: (self, name)
"""


@pytest.mark.usefixtures("collector_paused")
def test_a_leak_of_several_cycles_is_the_same_bug_in_whichever_order_they_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a library's own object, cycles alike are one leak."""
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "standin_metric.py").write_text(METRIC)
    monkeypatch.syspath_prepend(folder)
    kind = importlib.import_module("standin_metric").Metric
    sys.modules.pop("standin_metric")
    orders = list(itertools.permutations(["compute", "reset", "update"]))

    def made(order: tuple[str, ...]) -> str:
        return signature_of(lambda: kind(numpy.zeros(2**16), order))

    assert {made(order) for order in orders} == {made(orders[0])}


def named(name: str) -> None:
    stage = Stage(numpy.zeros(2**16))
    stage.next = None
    setattr(stage, name, stage)


def keyed(name: str) -> None:
    stage = Stage(numpy.zeros(2**16))
    stage.next = {name: stage}


def typed(name: str) -> None:
    stage = type(name, (Stage,), {"size": Stage.__init__})
    stage(numpy.zeros(2**16))


GENERATED = {
    "UUID": lambda: f"state_key_{uuid.uuid4()}",
    "UUID without dashes": lambda: f"hook_{uuid.uuid4().hex}",
    "address": lambda: f"node_{random.getrandbits(47) | 1 << 46:#x}",
    "id": lambda: f"_FSDP_{random.randrange(10**5, 10**15)}",
}
"""Names that are others in each process."""


@pytest.mark.usefixtures("collector_paused")
@pytest.mark.parametrize("kind", GENERATED)
@pytest.mark.parametrize("make", [named, keyed, typed])
def test_a_generated_name_is_the_same_bug_in_each_process(
    make: Callable[[str], object], kind: str
) -> None:
    names = {GENERATED[kind]() for _ in range(int(os.environ.get("TEST_CASES", "5")))}
    assert len(names) > 1
    assert len({signature_of(functools.partial(make, name)) for name in names}) == 1


@pytest.mark.usefixtures("collector_paused")
@pytest.mark.parametrize("make", [named, typed])
def test_ordinary_names_are_bugs_of_their_own(make: Callable[[str], object]) -> None:
    names = ["layer1", "layer2", "conv2d_1", "resnet50", "resnet101", "_cafe", "decade", "x_1234"]
    said = {signature_of(functools.partial(make, name)) for name in names}
    assert len(said) == len(names)


SPAWNS = """
import gc, multiprocessing, numpy, cyclescope

class Node:
    def __init__(self):
        self.me, self.array = self, numpy.zeros(5000)

class Owner:
    def __init__(self):
        self.array = numpy.zeros(5000)
        self.call = lambda: self.array

def work(queue=None):
    gc.disable()
    Node(), Owner()
    leaks = cyclescope.find_tensor_cycles(devices="any").leaks
    told = sorted((leak.signature, leak.summary) for leak in leaks)
    if queue is not None:
        queue.put(told)
    return told

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    told = queue.get()
    process.join()
    print(len(told), told == work())
"""


def test_spawned_processes_have_the_signatures_of_their_parent(tmp_path: Path) -> None:
    (tmp_path / "spawns.py").write_text(SPAWNS)
    done = processes.python("spawns.py", cwd=tmp_path, timeout=200)
    assert (done.stdout, done.returncode) == ("2 True\n", 0), done.stderr
