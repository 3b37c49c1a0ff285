"""What tests and programs commonly do to a process goes on beside a watch that delivers reports."""

from __future__ import annotations

import textwrap

import pytest

from support.processes import python

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
    "a test replaces the functions of the system by mocks that raise": """
        import logging, os, tempfile
        names = [
            "builtins.open", "gc.collect", "gc.disable", "gc.enable", "gc.get_stats",
            "gc.isenabled", "io.open", "json.loads", "logging.getLogger", "os.chmod",
            "os.environ", "os.environ.get", "os.getcwd", "os.getenv", "os.getpid", "os.listdir",
            "os.makedirs", "os.mkdir", "os.path.abspath", "os.path.basename", "os.path.exists",
            "os.path.isabs", "os.path.isfile", "os.path.join", "os.path.realpath", "os.readlink",
            "os.remove", "os.rename", "os.replace", "os.stat", "os.uname", "os.unlink",
            "os.urandom", "pathlib.Path.absolute", "pathlib.Path.cwd", "pathlib.Path.exists",
            "pathlib.Path.mkdir", "pathlib.Path.open", "pathlib.Path.read_bytes",
            "pathlib.Path.read_text", "pathlib.Path.stat", "pathlib.Path.write_text",
            "re.sub", "signal.pthread_sigmask", "tempfile.gettempdir", "tempfile.mkdtemp",
            "threading.Thread.start",
            "time.monotonic", "time.perf_counter", "time.sleep", "time.time", "time.time_ns",
        ]
        collect = gc.collect
        said = []


        class Handler(logging.Handler):
            def emit(self, record):
                said.append(record.getMessage())


        def work():
            gc.collect = collect
            leak()
            assert watch.flush()
            why = cyclescope.why_alive(kept[0])
            assert [it.words for it in why.keepers] == [
                "module `__main__` → `kept` (list, 1 item) → [0]"
            ]
            assert cyclescope.heap().buffers and str(cyclescope.heap())
            for _ in range(100):
                grown.append(numpy.zeros(1000))
                monitor.step()
            assert monitor.found and monitor.to_json() and monitor.to_html()
            assert not cyclescope.find_tensor_cycles(devices="any").leaks
            cyclescope.settings()


        logging.getLogger("cyclescope").addHandler(Handler())
        monitor = cyclescope.watch_growth(every=1, min_bytes=1, devices="any", max_share=9)
        kept = [numpy.zeros(10)]
        grown = []
        patches = [mock.patch(name, side_effect=OSError("a mock")) for name in names]
        mocks = [patch.start() for patch in patches]
        try:
            work()
        finally:
            for patch in reversed(patches):
                patch.stop()
        called = [name for name, mock in zip(names, mocks) if mock.mock_calls]
        assert not called, called
        assert len(watch.leaks) == 1
        assert len(said) == 2, said
        print("end")
    """,
    "nothing can be written to standard error": """
        grown = []
        monitor = cyclescope.watch_growth(every=1, min_bytes=1, devices="any", max_share=9)
        with mock.patch("sys.stderr") as stream:
            stream.write.side_effect = ValueError("a mock")
            leak()
            for _ in range(100):
                grown.append(numpy.zeros(1000))
                monitor.step()
            watch.flush()
        assert monitor.found and watch.leaks
        print("end")
    """,
    "a test replaces them before the first use": """
        import logging, os
        watch.stop()
        for name in [name for name in sys.modules if name.startswith("cyclescope.")]:
            if name not in ("cyclescope._find", "cyclescope._off", "cyclescope._system"):
                if name != "cyclescope._native":
                    del sys.modules[name]
        for name in [name for name in vars(cyclescope) if not name.startswith("__")]:
            if name not in ("find_tensor_cycles", "_system"):
                delattr(cyclescope, name)
        kept = [numpy.zeros(10)]
        names = ["os.getcwd", "os.environ.get", "logging.getLogger", "time.time", "builtins.open"]
        patches = [mock.patch(name, side_effect=OSError("a mock")) for name in names]
        mocks = [patch.start() for patch in patches]
        try:
            assert len(cyclescope.why_alive(kept[0]).keepers) == 1
            assert cyclescope.heap().buffers
            cyclescope.watch_growth(every=1, devices="any").step()
        finally:
            for patch in reversed(patches):
                patch.stop()
        called = [name for name, mock in zip(names, mocks) if mock.mock_calls]
        assert not called, called
        print("end")
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_goes_on(name: str) -> None:
    done = python("-c", HEAD + textwrap.dedent(PROGRAMS[name]), timeout=60)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_the_watch_itself_leaves_no_class_behind() -> None:
    program = """
        import gc, operator, enum
        import cyclescope

        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        cyclescope.warn_tensor_cycles(devices="any")
        cyclescope.heap()
        cyclescope.why_alive([[]])
        gc.collect()
        print([it for it in gc.garbage if type(it) is type and it.__module__ == "__main__"])
        print([it for it in gc.garbage if getattr(it, "__name__", "") == "around"])
        """
    done = python("-c", textwrap.dedent(program), timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n[]\n"), done.stderr
