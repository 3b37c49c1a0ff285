"""What becomes of a program, and of its reports, where files cannot be written."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import cyclescope
from support.nodes import SOURCE
from support.processes import python

HEAD = f"""
import gc, os, re, sys, tempfile
import numpy
import cyclescope

gc.disable()
folder = sys.argv[1]
{SOURCE}

class Other(Node):
    pass


def leak(kind=Node):
    kind()
    gc.collect()
    assert watch.flush(60)


"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    done = python("-c", HEAD + textwrap.dedent(program), str(folder), timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def unfinished(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.name.endswith(".part")]


def complaints(done: subprocess.CompletedProcess[str]) -> int:
    return done.stderr.count("cyclescope could not write a page")


def test_a_folder_that_is_removed_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    done = run(
        """
        watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)
        os.rmdir(folder)
        leak()
        """,
        folder,
    )
    assert complaints(done) == 0
    assert len(list(folder.glob("*.html"))) == 1


READ_ONLY = """
import pathlib
try:
    import resource  # what the watch imports later must be readable to it
except ImportError:
    pass
import cyclescope._public, json
os.makedirs(folder, exist_ok=True)
"""


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="this system has no users to become")
@pytest.mark.parametrize("begun", [True, False])
def test_a_read_only_folder(tmp_path: Path, begun: bool) -> None:
    """To the administrator nothing is read-only, so there the program becomes somebody else."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "pages"
    begin = 'watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)'
    lock = """
os.chmod(folder, 0o555)
if os.geteuid() == 0:
    os.seteuid(65534)
"""
    if begun:
        body = READ_ONLY + begin + lock + "leak()\nleak(Other)\n"
    else:
        body = (
            READ_ONLY
            + lock
            + f"try:\n    {begin}\nexcept PermissionError as error:\n    print(error)\n"
            + "print([c for c in gc.callbacks if 'cyclescope' in repr(c)])\n"
        )
    try:
        done = run(body, folder)
    finally:
        folder.chmod(0o755)
    assert list(folder.iterdir()) == []
    if begun:
        assert complaints(done) == 1
        assert done.stderr.count("held by a reference cycle") == 2
        assert "2 leaks, seen " in done.stderr
    else:
        sentence, callbacks = done.stdout.splitlines()
        assert "report_dir is not writable" in sentence
        assert callbacks == "[]"


def test_a_full_disk(tmp_path: Path) -> None:
    """No file may grow beyond some bytes, which is fewer than a page has."""
    pytest.importorskip("resource", reason="this system has no limits of file sizes")
    folder = tmp_path / "pages"
    done = run(
        """
        import resource
        watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
        leak()
        leak(Other)
        watch.stop()
        assert len(watch.leaks) == 2
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, -1))
        watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)
        leak()
        """,
        folder,
    )
    assert complaints(done) == 1
    assert unfinished(folder) == []
    # Written when there was room again; of before, there is nothing by halves.
    (page,) = folder.glob("*.html")
    assert page.read_text(encoding="utf-8").rstrip().endswith("</html>")


def test_names_that_are_taken(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    done = run(
        """
        watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)
        leak()
        (page,) = [name for name in os.listdir(folder) if name.endswith(".html")]
        (data,) = [name for name in os.listdir(folder) if name.endswith(".json")]
        watch.stop()
        before = {name: open(os.path.join(folder, name)).read() for name in (page, data)}

        # A new watch begins to number anew: its names are there already, one as a folder.
        watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)
        os.mkdir(os.path.join(folder, page.replace("-0.html", "-2.html")))
        leak()
        watch.stop()
        for name, text in before.items():
            assert open(os.path.join(folder, name)).read() == text, name
        """,
        folder,
    )
    assert complaints(done) == 0
    assert len([file for file in folder.glob("*.html") if file.is_file()]) == 2
    assert len(list(folder.glob("*.json"))) == 2


ENDLESS = """
import itertools, string
watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)
print("begun", flush=True)
for letters in itertools.product(string.ascii_lowercase, repeat=3):
    type("Made" + "".join(letters), (Node,), {})()
    gc.collect()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing kills at once here")
def test_no_half_page_where_the_process_is_killed(tmp_path: Path) -> None:
    at = random.Random(6)
    pages = 0
    for round_ in range(6):
        folder = tmp_path / str(round_)
        with subprocess.Popen(
            [sys.executable, "-c", HEAD + ENDLESS, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            while not list(folder.glob("*.html")):
                time.sleep(0.005)
            time.sleep(at.uniform(0, 0.1))
            process.kill()
        for page in folder.glob("*.html"):
            assert page.read_text(encoding="utf-8").rstrip().endswith("</html>"), page
            pages += 1
        for file in folder.glob("*.json"):
            assert cyclescope.CycleReport.from_json(file.read_text(encoding="utf-8")).leaks
    assert pages >= 6


def test_pages_end_where_leaks_do_not(tmp_path: Path) -> None:
    """A program that leaks in ever new ways fills neither the disk nor the log with the same."""
    folder = tmp_path / "pages"
    done = run(
        """
        import itertools, string
        import cyclescope._reporter
        cyclescope._reporter.MAX_PAGES = 5
        watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=folder)
        for letter in string.ascii_lowercase[:12]:
            leak(type("Made" + letter, (Node,), {}))
        assert len(watch.leaks) == 12
        """,
        folder,
    )
    assert len(list(folder.glob("*.html"))) == 5
    assert done.stderr.count("the limit for one watch") == 1
    assert done.stderr.count("held by a reference cycle") == 12
