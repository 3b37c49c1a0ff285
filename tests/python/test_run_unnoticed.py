"""``cyclescope run`` runs a file, a module or code as Python does, and the program cannot tell."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.command_line import Command, program
from support.processes import python

SELF = """
import sys, os, pickle
from pathlib import Path
import __main__
class Thing: pass
assert pickle.loads(pickle.dumps(Thing())).__class__ is Thing
print(__name__, Path(__file__).name, __main__.__dict__ is globals(), sys.argv[1:])
print(os.path.basename(sys.path[0]), None if __spec__ is None else __spec__.name, __package__)
print("__cached__" in globals())
"""


@pytest.mark.parametrize("arguments", [["leaky.py"], ["-m", "package"], ["-m", "package.module"]])
def test_the_program_cannot_tell(command: Command, tmp_path: Path, arguments: list[str]) -> None:
    program(tmp_path, SELF)
    program(tmp_path, "", "package/__init__.py")
    program(tmp_path, SELF, "package/__main__.py")
    program(tmp_path, SELF, "package/module.py")
    plain = python(*arguments, "a", "-b", cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    done = command("run", "--devices=any", *arguments, "a", "-b")
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout


UNNAMED = """
import sys
print(__name__, "__file__" in globals(), "__cached__" in globals(), __spec__, __package__)
print(__loader__, sys.argv, repr(sys.path[0]), sys.stdin.read())
def f(): raise ValueError("its own error")
if sys.argv[-1] == "fails": f()
"""


@pytest.mark.parametrize("arguments", [["-c", UNNAMED], ["-"]], ids=["-c", "-"])
@pytest.mark.parametrize("last", ["-b", "fails"])
def test_code_without_a_file_runs_as_python_runs_it(
    command: Command, tmp_path: Path, arguments: list[str], last: str
) -> None:
    given = [*arguments, "a", last]
    plain = python(*given, cwd=tmp_path, input=UNNAMED if arguments == ["-"] else "")
    done = command("run", "--devices=any", *given, input=UNNAMED if arguments == ["-"] else "")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout), done.stderr
    said = done.stderr.removesuffix("cyclescope: no leaks\n")
    assert (said == done.stderr) is (last == "fails")
    assert said.splitlines()[-1:] == plain.stderr.splitlines()[-1:]
    assert "cyclescope" not in said


@pytest.mark.parametrize("before", [[], ["--devices", "cpu"], ["--report-dir=pages"]])
def test_the_module_and_the_code_may_follow_without_a_blank(
    command: Command, tmp_path: Path, before: list[str]
) -> None:
    program(tmp_path, "import sys; print(sys.argv[1:])", "module.py")
    assert command("run", *before, "-mmodule", "-mx", "-cy").stdout == "['-mx', '-cy']\n"
    assert command("run", *before, "-cprint(5)", "-m").stdout == "5\n"
    assert command("run", *before, "module.py", "-mx").stdout == "['-mx']\n"


def test_errors_of_the_program_look_as_without(command: Command, tmp_path: Path) -> None:
    program(tmp_path, "def f():\n    raise ValueError('its own error')\nf()\n")
    plain = python("leaky.py", cwd=tmp_path)
    done = command("run", "--devices=any", "leaky.py")
    assert done.stderr == plain.stderr
    assert done.returncode == plain.returncode


def test_processes_that_the_program_spawns_find_it(command: Command, tmp_path: Path) -> None:
    program(
        tmp_path,
        """
        import multiprocessing

        def double(number):
            return 2 * number

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
        """,
    )
    done = command("run", "--devices=any", "leaky.py")
    assert (done.returncode, done.stdout) == (0, "[2, 4]\n"), done.stderr


def test_what_the_command_left_is_not_collected_by_the_program(
    command: Command, tmp_path: Path
) -> None:
    program(tmp_path, "import gc\ngc.set_debug(gc.DEBUG_SAVEALL)\nprint(gc.collect(), gc.garbage)")
    assert command("run", "--devices=any", "leaky.py").stdout == "0 []\n"


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_what_cannot_be_said_does_not_change_the_status(tmp_path: Path, redirect: str) -> None:
    program(tmp_path, "print('end')")
    line = f'"$0" -m cyclescope run --devices=any leaky.py {redirect}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "end\n")


def test_pytest_does_not_complain_that_it_cannot_rewrite(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    command = ["-m", "cyclescope", "run", "--devices=any", "-m", "pytest", "-q", "-p", "no:asyncio"]
    done = python(*command, cwd=tmp_path)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr


CRASHED = """
import atexit, sys

class Deleted:
    def __del__(self): print("deleted")

def at_exit():
    print(repr(sys.last_value), sys.last_type, sys.last_traceback.tb_frame.f_code.co_name)
    expected = sys.last_value if sys.version_info >= (3, 12) else None
    print(getattr(sys, "last_exc", None) is expected)

def main():
    local = Deleted()
    raise ValueError("its own error")

atexit.register(at_exit)
main()
"""


def test_exit_handlers_find_the_exception(command: Command, tmp_path: Path) -> None:
    program(tmp_path, CRASHED)
    plain = python("leaky.py", cwd=tmp_path)
    done = command("run", "--devices=any", "leaky.py")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
    assert "its own error" in done.stdout


def test_an_exception_that_the_program_keeps_is_no_leak(command: Command, tmp_path: Path) -> None:
    source = """
    import sys, numpy

    def main():
        held = [numpy.zeros(1 << 20)]
        held.append(held)
        raise ValueError("shown, and the program goes on")

    try:
        main()
    except ValueError as error:
        sys.last_value = error
    """
    program(tmp_path, textwrap.dedent(source))
    done = command("run", "--devices=any", "--fail-on-leak", "leaky.py")
    assert done.returncode == 0, done.stderr
