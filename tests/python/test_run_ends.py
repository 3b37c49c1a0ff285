"""However a program ends, it ends the same under ``cyclescope run``: status, output and errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import cyclescope
from support.nodes import SOURCE
from support.processes import python

SECONDS = 120
"""A program that does not end is a failure, and not one that is waited for."""

POOL = "from concurrent.futures import ThreadPoolExecutor as Pool\n"
OBJECT = "class Odd:\n def __str__(self): raise ValueError\n"

PROGRAMS = {
    "an executor that nobody shuts down": POOL + "print(Pool().submit(str, 5).result())",
    "an executor and an exception": POOL
    + "Pool().submit(str, 5).result()\nraise ValueError('boom')",
    "an executor of processes": """
        from concurrent.futures import ProcessPoolExecutor
        if __name__ == "__main__":
            # Kept: one that is freed here may still be ending when Python wakes its thread.
            pool = ProcessPoolExecutor(1)
            print(pool.submit(str, 5).result())
    """,
    "a thread that goes on as long as the main thread": """
        import threading, time
        def beat():
            while threading.main_thread().is_alive():
                time.sleep(0.01)
            print("over")
        threading.Thread(target=beat).start()
    """,
    "a thread that joins the main thread": """
        import threading
        main = threading.main_thread()
        threading.Thread(target=lambda: (main.join(), print("joined"))).start()
    """,
    "what is registered for the end of threads": """
        import atexit, threading
        threading._register_atexit(print, "threads")
        atexit.register(print, "exit")
    """,
    "an exception of what is registered for the end of threads": """
        import threading
        threading._register_atexit(lambda: (print("once"), 1 / 0))
    """,
    "no standard output": "import sys\nsys.stdout = None",
    "a closed standard output": "import sys\nsys.stdout.close()",
    "a standard output that cannot be flushed": """
        import sys
        class Broken:
            def write(self, text): pass
            def flush(self): raise OSError("broken")
        sys.stdout = Broken()
        1 / 0
    """,
    "no streams": "import sys\nsys.stdout = sys.stderr = None\n1 / 0",
    "a message without standard error": "import sys\nsys.stderr = None\nsys.exit('message')",
    "a message that has no text": "import sys\n" + OBJECT + "sys.exit(Odd())",
    "a status that cannot be read": """
        class Odd(SystemExit):
            code = property(lambda self: 1 / 0)
        raise Odd("message")
    """,
    "a hook that raises": """
        import sys
        def hook(*error): raise ValueError
        sys.excepthook = hook
        1 / 0
    """,
    "a hook that exits": "import sys\nsys.excepthook = lambda *error: sys.exit(9)\n1 / 0",
    "a hook that is None": "import sys\nsys.excepthook = None\n1 / 0",
    "no hook": "import sys\ndel sys.excepthook\n1 / 0",
    "an interrupt": "raise KeyboardInterrupt",
    "an interrupt by a signal": """
        import os, signal, time
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    """,
    "an interrupt, and what is done at exit": """
        import atexit
        class Late:
            def __del__(self): print("gone")
        late = Late()
        atexit.register(print, "exit")
        raise KeyboardInterrupt
    """,
    "garbage that what it does at exit refers to": """
        import atexit, gc, weakref
        gc.disable()
        class Node:
            def __del__(self): print("gone")
        node = Node()
        node.me = node
        weak = weakref.ref(node)
        weakref.finalize(node, print, "finalized")
        atexit.register(lambda: print("is there:", weak() is not None))
        del node
    """,
    "an exception of what it does at exit": """
        import atexit, sys
        atexit.register(print, "others go on")
        @atexit.register
        def end():
            sys.exit("this one does not")
        print("end")
    """,
    "logging that is not to be shut down": """
        import atexit, logging
        class Handler(logging.Handler):
            def close(self): print("closed")
        handler = Handler()
        atexit.unregister(logging.shutdown)
    """,
    "what it does at exit cannot be compared": """
        import atexit
        class Odd:
            def __eq__(self, other): raise ValueError
            def __call__(self): print("called")
        atexit.register(Odd())
    """,
    "its loader and annotations": """
        print(type(__loader__).__name__, __loader__.name, "__annotations__" in globals())
    """,
}


def ended(*command: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    errors = re.sub(r"^cyclescope: .*\n", "", done.stderr, flags=re.MULTILINE)
    # Python 3.13 and later have words for this that no extension module can choose.
    errors = re.sub(r"^Exception ignored .*threading.*\n", "", errors, flags=re.MULTILINE)
    return done.returncode, done.stdout, re.sub("0x[0-9a-f]+", "", errors)


WAITING = """\
import signal, threading, time
def alarm(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, alarm)
{}
signal.setitimer(signal.ITIMER_REAL, 0.5)
"""

JOBS = {
    "a thread": "threading.Thread(target=time.sleep, args=(2,)).start()",
    # It would wait for ever where it is waited for once more.
    "an executor": POOL
    + "waiting = threading.Thread(target=threading.Event().wait, daemon=True)\n"
    + "waiting.start()\n"
    + "threading._register_atexit(waiting.join)",
}


@pytest.mark.parametrize("job", JOBS)
def test_an_interrupt_ends_the_wait_for_threads_as_at_exit(job: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WAITING.format(JOBS[job]), "utf-8")
    for command in [], ["-m", "cyclescope", "run"]:
        status, output, errors = ended(*command, str(program))
        assert (status, output) == (0, ""), errors
        assert errors.rstrip().rstrip(":").endswith("KeyboardInterrupt")
        assert "cyclescope" not in errors


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_without_us(name: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAMS[name]).lstrip("\n"), "utf-8")
    status, output, errors = ended(str(program))
    if "has no text" in name and (3, 12) <= sys.version_info < (3, 14):
        # Some of these show the exception of `__str__` after all, as one of the end of threads.
        errors = "\n"
    assert ended("-m", "cyclescope", "run", str(program)) == (status, output, errors)


FROZEN = f"""
import gc, numpy
{SOURCE}
nodes = [Node() for _ in range(3)]
gc.freeze()
del nodes
"""


def watched(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Runs a program under the watch, which writes ``all.json`` and ``all.txt``."""
    (folder / "train.py").write_text(source)
    options = ["--devices", "any", "--report-dir", "reports", "-o", "all.json", "-o", "all.txt"]
    return python("-m", "cyclescope", "run", *options, "train.py", cwd=folder, timeout=SECONDS)


KILLED = """
import gc, os, signal, sys, time
import numpy

class First: pass
class Second: pass

for cls in First, Second:
    node = cls()
    node.itself, node.array = node, numpy.zeros(1 << 20, numpy.uint8)
    del node
    gc.collect()
    told = cls.__name__ + ".itself"
    while not os.path.exists("all.txt") or told not in open("all.txt").read():
        time.sleep(0.01)
print("known", flush=True)
"""

ENDS = {
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "os._exit": "os._exit(3)",
}


@pytest.mark.skipif(os.name == "nt", reason="Windows has other signals")
@pytest.mark.parametrize("how", ENDS)
def test_what_is_known_when_a_program_is_killed_is_in_its_file(how: str, tmp_path: Path) -> None:
    done = watched(tmp_path, KILLED + ENDS[how])
    status = 3 if how == "os._exit" else -signal.Signals[how]
    assert (done.returncode, done.stdout) == (status, "known\n"), done.stderr
    report = cyclescope.CycleReport.from_json((tmp_path / "all.json").read_text())
    assert sorted(leak.cycle[0].type_name for leak in report.leaks) == ["First", "Second"]
    assert "Second" in (tmp_path / "all.txt").read_text()


def test_the_exception_that_ends_a_program_is_no_leak(tmp_path: Path) -> None:
    source = """
        import numpy
        def main():
            array = numpy.zeros(1 << 21, numpy.uint8)
            raise ValueError("no")
        main()
    """
    done = watched(tmp_path, textwrap.dedent(source))
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: no\n")
    assert list(tmp_path.glob("reports/*")) == []
    report = cyclescope.CycleReport.from_json((tmp_path / "all.json").read_text())
    assert report.leaks == []


def test_garbage_that_no_collection_frees_is_a_leak(tmp_path: Path) -> None:
    run = ["-m", "cyclescope", "run", "--devices=any", "--fail-on-leak"]
    done = python(*run, "--output=report.json", "-c", FROZEN, cwd=tmp_path, timeout=SECONDS)
    assert done.returncode == 1, done.stderr
    assert "3.0 MiB held by 3 similar reference cycles" in done.stderr
    assert "no leaks" not in done.stderr
    (leak,) = json.loads((tmp_path / "report.json").read_text("utf-8"))["leaks"]
    assert (leak["count"], leak["frozen"]) == (3, 3)


def test_what_is_frozen_and_small_is_no_leak() -> None:
    small = FROZEN.replace("numpy.zeros(mib * 2**20", "numpy.zeros(mib * 2**10")
    run = [
        sys.executable,
        "-m",
        "cyclescope",
        "run",
        "--devices=any",
        "--min-bytes=5000",
        "-c",
        small,
    ]
    done = subprocess.run(run, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0
    assert "held by" not in done.stderr


FLAGGED = f"""
import gc, numpy
{SOURCE}
gc.set_debug(gc.DEBUG_STATS)
Node()
gc.collect()
gc.set_debug(0)
"""


def test_collections_that_a_debug_flag_hid_are_not_taken_for_clean(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FLAGGED, "utf-8")
    done = python("-m", "cyclescope", "run", "--devices=any", "--fail-on-leak", program)
    assert done.returncode == 2
    assert "was not inspected, because gc.DEBUG_STATS" in done.stderr
    assert "no leaks" not in done.stderr
