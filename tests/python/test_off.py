"""``CYCLESCOPE_OFF=1``: every entry point does nothing, and returns what it always returns."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import cyclescope
import support.off
from support.marks import HAS_TORCH, needs_torch
from support.nodes import SOURCE
from support.off import CASES
from support.processes import python

pytest_plugins = ["pytester"]

OFF = {"CYCLESCOPE_OFF": "1"}
PACKAGE = str(Path(cyclescope.__path__[0]).parent)

# The import of cyclescope may begin a collection, which would free it.
LEAKY = f"""
import gc, numpy, sys
{SOURCE}
gc.disable()
Node()
"""


def run(
    folder: Path, *arguments: str, environment: Mapping[str, str] = OFF
) -> subprocess.CompletedProcess[str]:
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CYCLESCOPE_")}
    return python(
        *arguments,
        cwd=folder,
        env={**kept, "PYTHONPATH": PACKAGE, "TMPDIR": str(temporary), **environment},
        timeout=200,
    )


def program(folder: Path, source: str, environment: Mapping[str, str] = OFF) -> str:
    """What a program prints; it may leave nothing else behind."""
    done = run(folder, "-c", source, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@cache
def uses(off: bool, folder: Path) -> dict[str, Any]:
    """What comes of the use of each name, in one process for all."""
    done = run(folder, support.off.__file__, environment=OFF if off else {})
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("off")


def test_there_is_a_case_for_every_public_name() -> None:
    assert sorted(CASES) == sorted(cyclescope.__all__)


@pytest.mark.parametrize("name", CASES)
def test_a_name_changes_nothing_and_keeps_its_types(
    name: str, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    off = uses(True, folder)[name]
    assert off["changed"] == {}
    if name in ("patch_torch", "TorchPatch") and not HAS_TORCH:
        return
    assert off["types"] == uses(False, tmp_path_factory.getbasetemp())[name]["types"]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("Watch", "callbacks of the collector"),
        ("find_tensor_cycles", "collections"),
        ("ForbiddenCycles", "callbacks of the collector"),
        ("step", "callbacks of the collector"),
        ("warn_tensor_cycles", "files"),
        pytest.param("TorchPatch", "patches", marks=needs_torch),
    ],
)
def test_what_cyclescope_does_otherwise_would_be_noticed(
    name: str, what: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert what in uses(False, tmp_path_factory.getbasetemp())[name]["changed"]


def test_importing_all_of_it_registers_nothing(tmp_path: Path) -> None:
    said = program(
        tmp_path,
        """
import atexit, os
registered = []
def record(function=None, *_, **functions):
    registered.extend([function] if function else functions.values())
    return function
atexit.register = os.register_at_fork = record

import importlib, pkgutil, threading
import cyclescope
for module in pkgutil.walk_packages(cyclescope.__path__, "cyclescope."):
    if "integrations." not in module.name:
        importlib.import_module(module.name)
print([each for each in registered if "cyclescope" in f"{each.__module__}{each!r}"])
print(threading.active_count())
""",
    )
    assert said == "[]\n1\n"


# The variable


@pytest.mark.parametrize(
    ("value", "is_off"),
    [
        *((value, True) for value in ("1", "true", "yes", "2", "off")),
        *((value, False) for value in ("", "0", "false", "False", " no ")),
    ],
)
def test_the_values(tmp_path: Path, value: str, is_off: bool) -> None:
    # What logs has a last resort: standard error, which is to stay empty.
    source = f"""{LEAKY}
import cyclescope
print(len(cyclescope.find_tensor_cycles(devices="any").leaks))
print(cyclescope.settings() == cyclescope.Settings())
"""
    said = program(tmp_path, source, {"CYCLESCOPE_OFF": value})
    assert said.split() == ["0" if is_off else "1", "True"]


def test_it_is_read_when_cyclescope_is_imported(tmp_path: Path) -> None:
    source = f"""{LEAKY}
import os, cyclescope
os.environ["CYCLESCOPE_OFF"] = "{{}}"
print(len(cyclescope.find_tensor_cycles(devices="any").leaks))
"""
    assert program(tmp_path, source.format(0)) == "0\n"
    assert program(tmp_path, source.format(1), {}) == "1\n"


def test_arguments_and_settings_are_checked_as_ever(tmp_path: Path) -> None:
    source = """
import cyclescope
for use in (
    lambda: cyclescope.warn_tensor_cycles(devices="nonsense"),
    lambda: cyclescope.observe_tensor_cycles(1),
    lambda: cyclescope.find_tensor_cycles(ignore="torch"),
    lambda: cyclescope.forbid_tensor_cycles(devices=[]),
    lambda: cyclescope.step(every=0),
    lambda: cyclescope.watch_growth(every=-1),
    lambda: cyclescope.on_oom(seconds=0),
    lambda: cyclescope.collect_on_pressure(2),
    lambda: cyclescope.explain("nonsense"),
):
    try:
        use()
        print("no error")
    except Exception as error:
        print(type(error).__name__, error)
"""
    off = program(tmp_path, source)
    assert "no error" not in off
    assert off == program(tmp_path, source, {})
    wrong = run(
        tmp_path,
        "-c",
        "import cyclescope; cyclescope.heap()",
        environment=OFF | {"CYCLESCOPE_EVERY": "x"},
    )
    assert "CYCLESCOPE_EVERY" in wrong.stderr
    # A variable that is not known is one that is logged otherwise.
    program(tmp_path, "import cyclescope; cyclescope.heap()", OFF | {"CYCLESCOPE_EVRY": "1"})


def test_empty_results_say_that_nothing_was_looked_at(tmp_path: Path) -> None:
    source = f"""{LEAKY}
import cyclescope
kept = [numpy.zeros(2**20)]
report, heap, why = cyclescope.find_tensor_cycles(), cyclescope.heap(), cyclescope.why_alive(kept)
print(heap.objects, len(heap.buffers), why.paths, why.loops, report.garbage_objects)
with cyclescope.watch_growth() as monitor:
    texts = [monitor.to_text(), monitor.to_html()]
for result in (report, heap, why):
    assert result.notes == [cyclescope._off.NOTE]
    texts += [str(result), result.to_html(), result.to_json()]
print(["CYCLESCOPE_OFF is set" in text for text in texts])
"""
    assert program(tmp_path, source) == f"0 0 [] [] 0\n{[True] * 11}\n"


def test_an_empty_report_is_redacted_too(tmp_path: Path) -> None:
    source = """
import cyclescope, os
report = cyclescope.find_tensor_cycles()
print([os.uname().nodename in text for text in (report.to_json(), cyclescope.heap().to_json())])
"""
    assert program(tmp_path, source, OFF) == "[True, True]\n"
    assert program(tmp_path, source, OFF | {"CYCLESCOPE_REDACT": "1"}) == "[False, False]\n"


# Loops and frameworks


def test_a_watch_does_not_look_at_the_interpreter(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "-c",
        """if True:
            import cyclescope
            from cyclescope import _reporter

            asked = []
            names = dir(_reporter._native)
            wrong = {name: lambda *_, name=name: asked.append(name) for name in names}
            _reporter._native = type("Native", (), {})()
            vars(_reporter._native).update(wrong)
            watch = cyclescope.warn_tensor_cycles()
            print(watch.report, watch.stop(), asked)""",
    )
    assert done.stdout == "None None []\n", done.stderr


def test_no_step_collects(tmp_path: Path) -> None:
    source = f"""{LEAKY}
import cyclescope, gc
gc.disable()
before = gc.get_stats()
with cyclescope.watch_growth(every=1) as monitor:
    print({{cyclescope.step(every=2, devices="any") for _ in range(10)}})
    print([monitor.step() for _ in range(30)] == [[]] * 30, monitor.found)
print(gc.get_stats() == before, cyclescope.warn_tensor_cycles().is_running)
"""
    assert program(tmp_path, source) == "{None}\nTrue []\nTrue False\n"


def test_ranks_send_nothing(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = """
import torch.distributed as dist, cyclescope
dist.init_process_group("gloo", init_method="file:///{file}", rank=0, world_size=1)
def refused(*_, **__):
    raise AssertionError("a collective was called")
dist.gather_object = dist.get_world_size = dist.get_global_rank = refused
print(cyclescope.gather(cyclescope.find_tensor_cycles()), cyclescope.gather(None))
dist.destroy_process_group()
"""
    assert (
        run(tmp_path, "-c", source.format(file=str(tmp_path / "store").lstrip("/"))).stdout
        == "None None\n"
    )


def test_nothing_waits_for_pytorch(tmp_path: Path) -> None:
    source = """
import cyclescope, threading
handles = cyclescope.on_oom("reports"), cyclescope.collect_on_pressure(), cyclescope.patch_torch()
import sys
print(threading.active_count(), "torch" in sys.modules, handles[0].is_running, handles[0].state)
"""
    assert program(tmp_path, source) == "1 False False off\n"
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    ("module", "make", "begin", "step", "end"),
    [
        (
            "lightning",
            "TensorCycles(every=1, devices='any', report_dir='pages')",
            "on_train_start(None, None)",
            "on_train_batch_end(None, None, None, None, 0)",
            "teardown(None, None, 'fit')",
        ),
        (
            "transformers",
            "TensorCyclesCallback(every=1, devices='any', report_dir='pages')",
            "on_train_begin(None, None, None)",
            "on_step_end(None, None, None)",
            "on_train_end(None, None, None)",
        ),
    ],
)
def test_an_integration(
    tmp_path: Path, module: str, make: str, begin: str, step: str, end: str
) -> None:
    pytest.importorskip(module)
    done = run(
        tmp_path,
        "-c",
        f"""{LEAKY}
import atexit, threading
from cyclescope.integrations.{module} import *
gc.disable()
before = gc.callbacks[:], gc.get_stats(), threading.enumerate(), atexit._ncallbacks()
callback = {make}
callback.{begin}
for _ in range(3):
    callback.{step}
print((gc.callbacks[:], gc.get_stats(), threading.enumerate(), atexit._ncallbacks()) == before)
callback.{end}
print(callback.last_report)
""",
    )
    assert done.stdout == "True\nNone\n", done.stderr
    assert not (tmp_path / "pages").exists()


# Tests


def test_a_test_case_passes_and_fails_as_without(tmp_path: Path) -> None:
    source = f"""{LEAKY}
import cyclescope, unittest
class Test(cyclescope.NoTensorCycles, unittest.TestCase):
    def test_leaks(self):
        Node()
    def test_fails(self):
        self.fail("by itself")
result = unittest.defaultTestLoader.loadTestsFromTestCase(Test).run(unittest.TestResult())
print(result.testsRun, len(result.failures), len(result.errors))
with cyclescope.forbid_tensor_cycles():
    Node()
cyclescope.assert_no_tensor_cycles()
"""
    assert program(tmp_path, source) == "2 1 0\n"


SUITE = f"""{LEAKY}
import pytest

def test_leaks():
    Node()

@pytest.mark.no_tensor_cycles(devices="any", ignore=["torch"])
def test_marked():
    Node()

def test_fixture(tensor_cycles):
    Node()
    tensor_cycles.check()
    assert tensor_cycles.collect().leaks == []
"""


@pytest.mark.parametrize("workers", [(), ("-n2",), ("-q",)])
def test_the_pytest_plugin(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    if "-n2" in workers:
        pytest.importorskip("xdist")
    monkeypatch.setenv("CYCLESCOPE_OFF", "1")
    pytester.makepyfile(SUITE)
    pytester.makeini("[pytest]\ntensor_cycles = error\ntensor_cycles_baseline = not-there.json\n")
    result = pytester.runpytest_subprocess(
        *("-p", "no:cyclescope", "-p", "cyclescope.pytest_plugin", "--strict-markers"),
        *("-p", "no:cacheprovider", "--tensor-cycles=error", "--tensor-cycles-devices=any"),
        *("--tensor-cycles-report-dir=leaks", "--tensor-cycles-json=leaks.json"),
        *("--tensor-cycles-sarif=leaks.sarif", "--tensor-cycles-update-baseline", *workers),
    )
    result.assert_outcomes(passed=3)
    said = result.stdout.str() + result.stderr.str()
    assert said.count("cyclescope is off (CYCLESCOPE_OFF is set): no test is checked") == 1
    assert "tensor cycles" not in said
    written = [each.suffix for each in pytester.path.rglob("*") if each.is_file()]
    assert not {".html", ".json", ".sarif"} & set(written)
    assert not (pytester.path / "leaks").exists()


# The command

PROGRAM = f"""{LEAKY}
import threading, time
def late():
    time.sleep(0.2)
    print("late")
threading.Thread(target=late).start()
print(sys.argv, sys.path[0], __name__, __file__, gc.callbacks, [
    name for name in ("CYCLESCOPE_OFF",) if name in __import__("os").environ
])
"""
ASKED = (
    *("--devices=any", "--report-dir=pages", "-o", "leaks.sarif", "-o", "leaks.json", "--trace"),
    *("--growth", "--oom", "--memory", "--fail-on-leak", "--record-history", "--redact"),
)


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(3)",
        "sys.exit('words')",
        "1 / 0",
        "raise KeyboardInterrupt",
        "raise SystemExit",
    ],
)
def test_a_program_runs_as_without(tmp_path: Path, end: str) -> None:
    file = tmp_path / "leaky.py"
    file.write_text(PROGRAM + end + "\n")
    plain = run(tmp_path, str(file), "--epochs", "3")
    before = sorted(tmp_path.rglob("*"))
    done = run(tmp_path, "-m", "cyclescope", "run", *ASKED, str(file), "--epochs", "3")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
    off, _, rest = done.stderr.partition("\n")
    assert off == "cyclescope is off (CYCLESCOPE_OFF is set): nothing is watched or written"
    assert rest == plain.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_module_runs_as_without(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(PROGRAM)
    environment = OFF | {"PYTHONDONTWRITEBYTECODE": "1"}
    plain = run(tmp_path, "-m", "package.train", "x", environment=environment)
    done = run(
        tmp_path,
        *("-m", "cyclescope", "run", "-o", "leaks.json", "-m", "package.train", "x"),
        environment=environment,
    )
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert not (tmp_path / "leaks.json").exists()


def test_the_doctor_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "cyclescope", "doctor", environment=OFF | {"CYCLESCOPE_EVERY": "7"})
    assert done.returncode == 0
    lines = {line[4:26].strip(): line[26:] for line in done.stdout.splitlines()}
    assert lines["off"] == "CYCLESCOPE_OFF is '1': cyclescope does nothing"
    assert lines["every"] == "7 (CYCLESCOPE_EVERY)"
    assert "leak" not in done.stdout
    on = run(tmp_path, "-m", "cyclescope", "doctor", "--no-gpu", environment={})
    assert "CYCLESCOPE_OFF" not in on.stdout


def test_commands_for_files_work_as_ever(tmp_path: Path) -> None:
    file = tmp_path / "leaky.py"
    file.write_text(LEAKY)
    made = run(
        tmp_path,
        *("-m", "cyclescope", "run", "--devices=any", "-o", "leaks.json", str(file)),
        environment={},
    )
    assert made.returncode == 0
    assert (tmp_path / "leaks.json").exists()
    for command in (
        ("report", "leaks.json"),
        ("merge", "leaks.json", "leaks.json"),
        ("diff", "leaks.json", "leaks.json"),
        ("explain", "self-reference"),
        ("explain",),
    ):
        off, on = (
            run(tmp_path, "-m", "cyclescope", *command, environment=each) for each in (OFF, {})
        )
        assert (off.returncode, off.stdout, off.stderr) == (on.returncode, on.stdout, on.stderr)
    run(tmp_path, "-m", "cyclescope", "report", "leaks.json", "-o", "page.html")
    assert (tmp_path / "page.html").exists()
