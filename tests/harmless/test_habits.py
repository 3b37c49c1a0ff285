"""What tests and programs commonly do to a process goes on beside a watch that delivers reports."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

HEAD = """
import gc, sys, threading, time
from unittest import mock
import numpy
import cyclescope

watch = cyclescope.warn_tensor_cycles(devices="any", min_bytes=0)


def leak(number=0):
    cell = type(f"Cell{number}", (), {})()
    cell.me = cell
    cell.array = numpy.zeros(1000)
    del cell
    gc.collect()

"""

PROGRAMS = {
    "it joins all threads": """
        for number in range(20):
            leak(number)
            for thread in threading.enumerate():
                if thread is not threading.main_thread():
                    thread.join()
        leak(20)
        watch.flush()
        assert len(watch.leaks) == 21
        print("end")
    """,
    "it waits for each thread to end": """
        for number in range(20):
            leak(number)
            for thread in threading.enumerate():
                while thread is not threading.main_thread() and thread.is_alive():
                    time.sleep(0.001)
        print("end")
    """,
    "every file exists": """
        with mock.patch("pathlib.Path.exists", return_value=True) as exists:
            leak()
            watch.flush()
        assert not exists.called
        print("end")
    """,
    "every file exists for ever": """
        mock.patch("pathlib.Path.exists", return_value=True).start()
        mock.patch("os.path.exists", return_value=True).start()
        leak()
        print("end")
    """,
    "the functions of the system are counted": """
        names = ["os.stat", "os.replace", "os.mkdir", "builtins.open"]
        names += [f"pathlib.Path.{name}" for name in ("mkdir", "write_text", "replace", "exists")]
        leak()
        watch.flush()
        patches = [mock.patch(name) for name in names]
        counts = [patch.start() for patch in patches]
        leak(1)
        watch.flush()
        for patch in patches:
            patch.stop()
        assert not any(count.called for count in counts)
        print("end")
    """,
    "the process has another number": """
        mock.patch("os.getpid", return_value=1).start()
        leak()
        watch.flush()
        assert watch.leaks
        print("end")
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_goes_on(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(PROGRAMS[name])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert "Traceback" not in done.stderr
