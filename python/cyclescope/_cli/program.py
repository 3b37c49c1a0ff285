"""Run a program as Python itself would."""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

INTERRUPTED = 130


class ProgramError(Exception):
    """The program does not exist or is not Python."""


@dataclass
class Program:
    """A program that was found but has not started."""

    code: CodeType
    name: str
    """The first item of ``sys.argv``."""
    file: str
    search_path: str
    """The first item of ``sys.path``."""
    spec: ModuleSpec | None
    arguments: list[str]

    @classmethod
    def find(cls, name: str, arguments: Sequence[str], *, is_module: bool) -> Program:
        """Find a script, or a module as ``python -m`` does.

        Raises:
            ProgramError: If it does not exist or is not Python.
        """
        return _module(name, list(arguments)) if is_module else _script(name, list(arguments))

    def announce(self) -> None:
        """Set ``sys.argv`` and ``sys.path`` for this program."""
        sys.argv[:] = [self.name, *self.arguments]
        sys.path[0] = self.search_path

    def run(self) -> int:
        """Run the program as the module ``__main__`` and return its exit status.

        The module stays in ``sys.modules``, for threads that still run and for pickled objects.
        """
        main = ModuleType("__main__")
        main.__dict__.update(
            __file__=self.file,
            __builtins__=builtins,
            __spec__=self.spec,
            __package__=None if self.spec is None else self.spec.parent,
            __loader__=None if self.spec is None else self.spec.loader,
            __cached__=None if self.spec is None else self.spec.cached,
        )
        sys.modules["__main__"] = main
        try:
            exec(self.code, main.__dict__)
        except SystemExit as end:
            return _status(end)
        except KeyboardInterrupt as error:
            _show(error)
            return INTERRUPTED
        except BaseException as error:
            _show(error)
            return 1
        return 0


def _script(name: str, arguments: list[str]) -> Program:
    # As Python does it: `__file__` is absolute, and `sys.path[0]` follows symbolic links.
    path = Path(name).absolute()
    if path.is_dir():
        path = path / "__main__.py"
        search_path = name
    else:
        search_path = str(path.resolve().parent)
    try:
        source = path.read_bytes()
    except OSError as error:
        hint = "; to run a module, use -m" if not name.endswith(".py") else ""
        raise ProgramError(f"cannot run {name}: {error.strerror}{hint}") from None
    return Program(_compile(source, str(path)), name, str(path), search_path, None, arguments)


def _compile(source: bytes, file: str) -> CodeType:
    try:
        return compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        text = "".join(traceback.format_exception_only(error)).rstrip()
        raise ProgramError(f"{file} is not a Python program\n{text}") from None


def _module(name: str, arguments: list[str]) -> Program:
    here = os.getcwd()
    sys.path[0] = here
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
            if spec is None:
                raise ProgramError(f"{name} is a package without a __main__ module")
        code = getattr(spec.loader, "get_code", lambda _: None)(spec.name) if spec else None
    except (ImportError, ValueError, AttributeError) as error:
        raise ProgramError(f"cannot run the module {name}: {error}") from None
    if spec is None or not isinstance(code, CodeType):
        raise ProgramError(f"no module named {name}")
    file = spec.origin or name
    return Program(code, file, file, here, spec, arguments)


def _status(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Show an exception as Python does, without the frame of this file."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.stdout.flush()
    sys.excepthook(type(error), error.with_traceback(trace), trace)
