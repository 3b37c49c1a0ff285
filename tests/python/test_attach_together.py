"""``cyclescope attach`` where others are at work too: other commands, signals, greenlets."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cyclescope._attach import process
from support.attached import LEAKY, asked, lets_in, program, refusal
from support.started import SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attach works on Linux only")


@lets_in
def test_two_at_once_have_their_turn(tmp_path: Path) -> None:
    with program(tmp_path, LEAKY) as running:
        commands = [
            subprocess.Popen(
                [sys.executable, "-m", "cyclescope", "attach", str(running.pid), "--heap"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(4)
        ]
        for each in commands:
            output, errors = each.communicate(timeout=SECONDS)
            assert (each.returncode, errors) == (0, "")
            assert "batch" in output or "history" in output
        with process.Process(running.pid).locked(1) as is_ours:
            assert is_ours
            said = refusal(running.pid, timeout=0.1)
        assert f"another `cyclescope attach` was still asking process {running.pid}" in said
        assert running.errors == ""


@lets_in
def test_a_stopped_process_is_said_to_be_stopped(tmp_path: Path) -> None:
    with program(tmp_path, LEAKY) as running:
        running.process.send_signal(signal.SIGSTOP)
        while not process.Process(running.pid).is_stopped:
            time.sleep(0.01)
        said = refusal(running.pid, timeout=0.1)
        assert said.startswith(f"process {running.pid} is stopped")
        running.process.send_signal(signal.SIGCONT)
        assert asked(running.pid, "heap")
        assert running.errors == ""


@lets_in
def test_a_real_thread_answers_where_threads_are_greenlets(tmp_path: Path) -> None:
    """Else the main thread would block its signals, which are for itself."""
    source = """
    import _thread, types
    started = _thread.start_new_thread
    monkey = types.ModuleType("gevent.monkey")
    monkey.get_original = lambda module, name: started
    sys.modules["gevent.monkey"] = monkey
    def not_a_thread(function, arguments):
        function(*arguments)
    _thread.start_new_thread = not_a_thread
    wait()
    print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    wait()
    """
    with program(tmp_path, source) as running:
        assert asked(running.pid, "heap")
        running.go_on()
        assert running.line() == "set()"
