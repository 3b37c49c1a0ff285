"""The threads of cyclescope are none that a program waits for, and take no signal from it."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from cyclescope import _threads
from support.processes import python

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "sigwait") or not hasattr(os, "fork"), reason="needs POSIX"
)

STARTS = {
    "a watch": "cyclescope.warn_tensor_cycles(devices='any')",
    "on_oom": "cyclescope.on_oom()",
    "on_signal": "cyclescope.on_signal('USR1')",
    "collect_on_pressure": "cyclescope.collect_on_pressure(0.9)",
}
OPTIONS = ["--growth", "--oom"]

JOINS_ALL = """
import threading
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
print("joined", threading.active_count())
"""

WAITS_FOR_A_SIGNAL = """
import os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
os.kill(os.getpid(), signal.SIGUSR2)
time.sleep(0.2)
print("received", signal.sigwait({signal.SIGUSR2}) == signal.SIGUSR2)
"""

FORKS = """
import os, time
try:
    import numpy
except ImportError:
    pass
time.sleep(0.2)
child = os.fork()
if child == 0:
    os._exit(3)
print("child", os.waitpid(child, 0)[1] >> 8)
"""

PROGRAMS = {"joins": JOINS_ALL, "signal": WAITS_FOR_A_SIGNAL, "forks": FORKS}
SAYS = {"joins": "joined 1", "signal": "received True", "forks": "child 3"}
COUNTS_ENDED = sys.version_info[:2] == (3, 12)
"""3.12 counts threads of the system, of which one may be there for a moment after its end."""

STRICT = () if COUNTS_ENDED else ("-W", "error::DeprecationWarning")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("start", STARTS)
def test_a_program_that_starts_it(start: str, name: str, tmp_path: Path) -> None:
    if start == "on_signal" and name == "forks":
        pytest.skip("its thread waits in native code, and stays")
    program = tmp_path / "program.py"
    program.write_text(f"import cyclescope\n{STARTS[start]}\n{PROGRAMS[name]}")
    done = python(*STRICT, str(program), cwd=tmp_path, timeout=60)
    assert SAYS[name] in done.stdout, done.stderr
    assert COUNTS_ENDED or "DeprecationWarning" not in done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("option", OPTIONS)
def test_a_program_that_is_run(option: str, name: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[name])
    options = ["-m", "cyclescope", "run", "--devices", "any", option]
    done = python(*STRICT, *options, str(program), cwd=tmp_path, timeout=60)
    assert SAYS[name] in done.stdout, done.stderr
    assert COUNTS_ENDED or "DeprecationWarning" not in done.stderr


def test_a_poller_keeps_its_time_where_the_program_forks_often(tmp_path: Path) -> None:
    program = """
        import os, time
        from cyclescope import _poller
        looks = []
        poller = _poller.Poller(lambda: looks.append(1), 0.3, "looks")
        deadline = time.monotonic() + 20
        while len(looks) < 3 and time.monotonic() < deadline:
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            time.sleep(0.05)
        assert len(looks) >= 3
    """
    python("-c", textwrap.dedent(program), cwd=tmp_path, check=True, timeout=60)


def test_the_thread_that_logs_an_error_is_listed_by_its_name() -> None:
    seen: list[str] = []
    done = threading.Event()

    def log() -> None:
        seen.extend([threading.current_thread().name, *(it.name for it in threading.enumerate())])
        done.set()

    _threads.run_aside(log, "cyclescope-oom")
    assert done.wait(30)
    assert seen[0] == "cyclescope-oom"
    assert not any(name.startswith("Dummy") for name in seen)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_a_poller_begins_again_behind_a_fork(tmp_path: Path) -> None:
    program = """
        import os, threading, time
        from cyclescope import _poller
        looks = []
        poller = _poller.Poller(lambda: looks.append(os.getpid()), 0.01, "looks")
        time.sleep(0.2)
        child = os.fork()
        if child == 0:
            time.sleep(0.2)
            os._exit(os.getpid() in looks)
        assert os.waitpid(child, 0)[1] == 0
        before = len(looks)
        deadline = time.monotonic() + 20
        while len(looks) <= before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert 0 < before < len(looks)
        poller.stop()
        time.sleep(0.2)
        before = len(looks)
        time.sleep(0.1)
        assert len(looks) == before
    """
    python("-c", textwrap.dedent(program), cwd=tmp_path, check=True, timeout=60)
