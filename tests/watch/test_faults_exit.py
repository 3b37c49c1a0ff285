"""Programs whose output nobody reads: they end as they do without a watch."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import textwrap
import time

import pytest

import cyclescope
from cyclescope import _log, _native, _teller
from support.nodes import SOURCE, Node
from support.processes import python

HEAD = f"""
import gc, logging, sys, threading, time
import numpy
import cyclescope

gc.disable()
{SOURCE}
cyclescope.warn_tensor_cycles(devices="any", min_bytes=0)
"""

HANDLERS = {
    "one that blocks for ever": """
        class Blocking(logging.Handler):
            def emit(self, record):
                threading.Event().wait()

        logging.root.addHandler(Blocking())
        """,
    "a queue that nobody reads": """
        import logging.handlers, queue

        class Bounded(logging.handlers.QueueHandler):
            def enqueue(self, record):
                self.queue.put(record)

        logging.root.addHandler(Bounded(queue.Queue(maxsize=1)))
        """,
    "a stream that the program has locked": """
        class Locked:
            lock = threading.Lock()

            def write(self, text):
                with self.lock:
                    return len(text)

            def flush(self):
                pass

        sys.stderr = Locked()
        Locked.lock.acquire()
        """,
}


@pytest.mark.parametrize("handler", HANDLERS)
def test_the_program_ends_though_a_handler_blocks(handler: str) -> None:
    leaks = """
        Node()
        gc.collect()
        class Other(Node):
            pass
        Other()
        gc.collect()
        time.sleep(0.3)
        print("end", flush=True)
        """
    program = HEAD + textwrap.dedent(HANDLERS[handler]) + textwrap.dedent(leaks)
    done = python("-c", program, timeout=60)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


PIPE = """
before = {before!r}
exec(before)
for number in range(300):
    made = type(f"Made{{number}}", (Node,), {{}})
    one = made()
    setattr(one, f"me{{number}}", one)
    del one
    gc.collect()
print("end", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="pipes are told by POSIX")
@pytest.mark.parametrize("handler", ["", "logging.basicConfig()"])
def test_the_program_ends_though_nobody_reads_its_warnings(handler: str) -> None:
    program = [sys.executable, "-c", HEAD + PIPE.format(before=handler)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.wait(120) == 0
        assert child.stdout is not None
        assert child.stdout.read() == b"end\n"
        assert child.stderr is not None
        said = child.stderr.read().decode()
    assert said.count("Fix:") > 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no SIGPIPE")
def test_a_reader_that_has_gone_ends_nothing() -> None:
    ends, writes = os.pipe()
    before = "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)"
    program = [sys.executable, "-c", HEAD + PIPE.format(before=before)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=writes) as child:
        os.close(writes)
        os.close(ends)
        assert child.wait(120) == 0


def test_a_message_waits_for_no_reader_on_a_thread_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends, writes = os.pipe()
    try:
        os.set_blocking(writes, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(writes, b"x" * 4096):
                pass
        assert _native.is_full_pipe(writes)
        monkeypatch.setattr(_log, "_files", lambda: iter([writes]))
        assert not _log._has_readers()
        os.read(ends, 1 << 16)
        assert not _native.is_full_pipe(writes)
        assert _log._has_readers()
    finally:
        os.close(ends)
        os.close(writes)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.usefixtures("collector_paused")
def test_no_thread_is_there_while_the_program_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_teller, "has_threads", lambda: False)
    seen: list[object] = []
    with cyclescope.observe_tensor_cycles(seen.append, devices="any") as watch:
        before = _teller._thread
        assert before is not None
        deadline = time.monotonic() + 10
        _teller._before_fork()
        while not before.has_ended and time.monotonic() < deadline:
            time.sleep(0.01)
        assert before.has_ended
        _teller._after_fork_in_parent()
        assert _teller._thread is not before
        Node()
        gc.collect()
        assert watch.flush(30)
    assert len(seen) == 1


def test_a_fork_does_not_wait_where_there_are_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_teller, "has_threads", lambda: True)
    with cyclescope.observe_tensor_cycles(lambda _: None, devices="any"):
        thread = _teller._thread
        assert thread is not None
        _teller._before_fork()
        _teller._after_fork_in_parent()
        assert _teller._thread is thread
        assert not thread.has_ended


@pytest.mark.skipif(sys.version_info < (3, 12), reason="CPython warns of it since 3.12")
@pytest.mark.parametrize("action", ["error", "always"])
def test_a_fork_warns_of_nothing(action: str) -> None:
    program = """
        import os
        for _ in range(20):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
        print("end")
        """
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = python(
        "-W",
        f"{action}::DeprecationWarning",
        "-c",
        HEAD + textwrap.dedent(program),
        env=environment,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
