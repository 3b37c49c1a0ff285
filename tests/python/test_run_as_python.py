"""``cyclescope run`` starts whatever Python starts, and in the same way."""

from __future__ import annotations

import os
import py_compile
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import cyclescope
from support.processes import python

PACKAGES = str(Path(cyclescope.__file__).parents[1])

SHOW = """
import sys
print(sys.path[:3], sys.argv, __spec__ and (__spec__.name, __spec__.origin), repr(__package__))
print(type(__loader__).__name__, globals().get("__file__"), globals().get("__cached__"))
print(sorted(name for name in globals() if name.startswith("__")))
"""

COMMANDS = {
    "a file": ["proj/main.py"],
    "a file of this folder": ["./proj/main.py"],
    "a file beside": ["proj/../proj/./main.py"],
    "a folder": ["proj/folder"],
    "a folder of this folder": ["./proj/folder"],
    "an archive": ["proj/packed.pyz"],
    "a compiled file": ["proj/compiled.pyc"],
    "a compiled file by another name": ["proj/compiled.bin"],
    "a module": ["-m", "there"],
    "a package": ["-m", "packed"],
    "code": ["-c", SHOW],
    "standard input": ["-"],
}

INSPECTED = """
import inspect, traceback
def f():
    return 1 / 0
try:
    print(inspect.getsource(f))
except OSError as error:
    print(error)
try:
    f()
except ZeroDivisionError:
    print(traceback.format_exc())
"""

FLAGS = [[]] if sys.version_info < (3, 11) else [[], ["-P"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "proj/main.py", "proj/folder/__main__.py", "lib/there.py", "lib/packed/__main__.py":
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SHOW, "utf-8")
    (tmp_path / "lib/packed/__init__.py").write_text("import sys\nprint(sys.argv)\n", "utf-8")
    with zipfile.ZipFile(tmp_path / "proj/packed.pyz", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    for name in "compiled.pyc", "compiled.bin":
        py_compile.compile(str(tmp_path / "proj/main.py"), str(tmp_path / "proj" / name))
    return tmp_path


def ended(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder / "lib"), PACKAGES])
    return python(
        *arguments, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, input=SHOW, timeout=120
    )


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("kind", COMMANDS)
def test_it_sees_the_same(folder: Path, kind: str, flags: list[str]) -> None:
    command = [*COMMANDS[kind], "argument"]
    plain = ended(folder, *flags, *command)
    watched = ended(folder, *flags, "-m", "cyclescope", "run", *command)
    assert plain.returncode == 0, plain.stderr
    assert (watched.returncode, watched.stdout) == (0, plain.stdout), watched.stderr


@pytest.mark.parametrize("arguments", [["--"], ["--", "ls", "-l"], ["a", "--", "b"], ["-o", "--"]])
def test_what_is_behind_the_program_is_its_own(folder: Path, arguments: list[str]) -> None:
    command = ["-c", "import sys; print(sys.argv)", *arguments]
    plain = ended(folder, *command)
    for options in [], ["--devices", "any"]:
        watched = ended(folder, "-m", "cyclescope", "run", *options, *command)
        assert watched.stdout == plain.stdout, watched.stderr
    # Nor does one before the program belong to it.
    plain = ended(folder, "-", *arguments)
    watched = ended(folder, "-m", "cyclescope", "run", "--", "-", *arguments)
    assert watched.stdout == plain.stdout, watched.stderr


def test_what_cannot_run_is_said(folder: Path) -> None:
    (folder / "broken.pyc").write_bytes(b"\0" * 20)
    (folder / "folder").mkdir()
    (folder / "folder/__main__.py").write_text("a b\n", "utf-8")
    with zipfile.ZipFile(folder / "empty.pyz", "w") as archive:
        archive.writestr("other.py", "")
    said = {
        "broken.pyc": "cannot run broken.pyc: bad magic number",
        "folder": "__main__.py is not a Python program\n",
        "empty.pyz": "cannot run empty.pyz: it has no __main__.py",
    }
    for name, expected in said.items():
        done = ended(folder, "-m", "cyclescope", "run", name)
        assert done.returncode == 2
        assert expected in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="the current folder cannot be removed there")
@pytest.mark.parametrize("kind", ["script", "module", "code"])
def test_the_current_folder_may_be_removed(kind: str, folder: Path) -> None:
    command = {
        "script": [str(folder / "proj/main.py")],
        "module": ["-m", "there"],
        "code": ["-c", SHOW],
    }[kind]
    # By its own command, too, for which Python searches another folder first.
    start = "import sys; from cyclescope.__main__ import main; sys.exit(main())"
    own = folder / "own/command.py"
    own.parent.mkdir()
    own.write_text(start, "utf-8")
    ways = [[], ["-m", "cyclescope", "run"], [str(own), "run"]]
    paths = os.pathsep.join([str(folder / "lib"), PACKAGES])
    said = []
    for way in ways:
        (folder / "gone").mkdir()
        arguments = shlex.join([sys.executable, *way, *command])
        done = subprocess.run(
            ["sh", "-c", f"rmdir {shlex.quote(str(folder / 'gone'))}; exec {arguments}"],
            cwd=folder / "gone",
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said == [said[0]] * len(ways)


def test_code_has_its_source_as_in_python() -> None:
    plain = python("-c", INSPECTED, check=True).stdout
    assert python("-m", "cyclescope", "run", "-c", INSPECTED, check=True).stdout == plain


def test_a_program_that_is_inspected_ends_without_a_traceback() -> None:
    done = python("-i", "-m", "cyclescope", "run", "-c", "print(1)", input="")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "Traceback" not in done.stderr
