"""Run a program as Python itself would."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import importlib.util
import logging
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.machinery import (
    BuiltinImporter,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from inspect import CO_COROUTINE
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any, TextIO, cast

from cyclescope import _native, _teller
from cyclescope._cli.notebook import Notebook, NotebookError
from cyclescope._imported import imported

INTERRUPTED = 130

FOLDER = Path(__file__).parent


class ProgramError(Exception):
    """The program does not exist or is not Python."""


@dataclass
class Program:
    """A program that was found but has not started."""

    codes: list[CodeType]
    """What to run, one after the other: the cells of a notebook, or one alone."""
    name: str
    """The first item of ``sys.argv``."""
    file: str | None
    """The value of ``__file__``; None for code that is in no file."""
    search_path: str | None
    """The first item of ``sys.path``; None if the current folder was removed."""
    spec: ModuleSpec | None
    loader: object
    arguments: list[str]
    notebook: Notebook | None = None
    source: str | None = None
    """What is run, if it is in no file and nothing else has it."""

    @classmethod
    def find(cls, name: str, arguments: Sequence[str], kind: str | None) -> Program:
        """Find a script, or what ``python -m``, ``-c`` or ``-`` would run.

        Args:
            name: The script, the module or the code.
            arguments: The arguments of the program.
            kind: ``module`` or ``code``; None for a file, or ``-`` for standard input.

        Raises:
            ProgramError: If it does not exist or is not Python.
        """
        if kind == "module":
            return _module(name, list(arguments))
        if kind == "code":
            return replace(_code(name, "<string>", "-c", list(arguments)), source=name)
        if name == "-":
            if sys.stdin is None:
                raise ProgramError("cannot run standard input: it is closed")
            stdin = _code(sys.stdin.buffer.read(), "<stdin>", name, list(arguments))
            # As `pymain_run_stdin` in CPython's Modules/main.c has it.
            return replace(stdin, file="<stdin>")
        return _script(name, list(arguments))

    def announce(self) -> None:
        """Set ``sys.argv`` and ``sys.path`` for this program."""
        sys.argv[:] = [self.name, *self.arguments]
        if not _is_path_safe():
            _search_first(self.search_path)
        elif (
            self.search_path is not None and self.spec is not None and self.spec.name == "__main__"
        ):
            # What is a folder or an archive is searched all the same (`pymain_run_python`).
            sys.path.insert(0, self.search_path)

    def run(self) -> int:
        """Run the program as the module ``__main__`` and return its exit status.

        The module stays in ``sys.modules``, for threads that still run and for pickled objects.
        """
        main = ModuleType("__main__")
        main.__dict__.update(
            __builtins__=builtins,
            __spec__=self.spec,
            __package__=None if self.spec is None else self.spec.parent,
            __loader__=self.loader,
        )
        if sys.version_info < (3, 14):
            main.__dict__.update(__annotations__={})
        if self.file is not None:
            main.__dict__["__file__"] = self.file
        if self.file is not None and sys.version_info < (3, 15):
            main.__dict__["__cached__"] = None if self.spec is None else self.spec.cached
        sys.modules["__main__"] = main
        if self.notebook is not None:
            self.notebook.prepare(main.__dict__)
        self._register_source()
        try:
            if any(code.co_flags & CO_COROUTINE for code in self.codes):
                import asyncio

                asyncio.run(_awaiting(self.codes, main.__dict__))
            else:
                for code in self.codes:
                    exec(code, main.__dict__)
            return 0
        except SystemExit as end:
            return _status(end)
        except BaseException as raised:
            error = trimmed(raised)
        # Not within the handler: what the program's own hook raises has no context then.
        is_interrupt = isinstance(error, KeyboardInterrupt)
        try:
            status = _show(error)
        finally:
            # Its traceback leads back to this frame: a cycle that would be taken for the program's.
            del error
        if is_interrupt:
            # Who has started this program is to see that it was interrupted.
            _native.end_by_interrupt()
            return INTERRUPTED
        return status

    def _register_source(self) -> None:
        """Let tracebacks and ``inspect`` find the text of ``-c``, as Python does from 3.13 on.

        ``_PyRun_StringFlagsWithName`` in Python/pythonrun.c.
        """
        if self.source is not None and sys.version_info >= (3, 13):
            # Its name and its parameters are CPython's own business.
            with contextlib.suppress(Exception):
                import linecache

                (code,) = self.codes
                register = linecache._register_code  # type: ignore[attr-defined]
                is_by_code = hasattr(linecache, "_interactive_cache")
                register(code if is_by_code else "<string>", self.source, "<string>")


class _Probe:
    """Told of all that it is compared with, and equal to some of that."""

    def __init__(self, equal: Sequence[object]) -> None:
        self._equal = equal
        self.met: list[object] = []

    def __eq__(self, other: object) -> bool:
        self.met.append(other)
        return any(other is it for it in self._equal)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self) -> None: ...


def _take_out(functions: Sequence[object]) -> list[object]:
    """Take functions out of ``atexit``, which compares all that is registered with what is to go.

    Returns:
        What was registered; ``atexit`` does not list it.
    """
    probe = _Probe(functions)
    atexit.unregister(probe)
    return probe.met


def run_exit_handlers() -> None:
    """Run the functions that the program has registered with ``atexit``, as its end does next.

    What is garbage then can be collected: nothing of the program is left to run. Later run our own
    function, that of ``logging``, which this command has imported, and that of JAX, after which no
    array has any memory.
    """
    jax = imported("jax._src.api", "clean_up")
    try:
        registered = [id(function) for function in _take_out(())]
    except Exception:
        return  # One of the program's cannot be compared: the end of the process runs all.
    # The program may have taken out what is not its own.
    later: list[Any] = [
        it for it in (logging.shutdown, _teller.at_exit, jax) if id(it) in registered
    ]
    _take_out(later)
    # What one of them raises is told as at the end of a process, and the others run.
    atexit._run_exitfuncs()
    for function in later:
        atexit.register(function)


def _is_path_safe() -> bool:
    """Whether Python was told to put nothing before its search path (``-P``, ``-I``)."""
    return bool(getattr(sys.flags, "safe_path", sys.flags.isolated))


_searched: int | None = None
"""How many folders Python or this command has put before the search path; None if not known."""


def _search_first(path: str | None) -> None:
    """Search a folder first, or none, and no longer what Python has put there for this command."""
    global _searched
    if _searched is None:
        is_module = getattr(sys.modules.get("__main__"), "__spec__", None) is not None
        # As `_PyPathConfig_ComputeSysPath0` in Python/pathconfig.c has it.
        _searched = 0 if is_module and _current_folder() is None else 1
    paths = [] if path is None else [path]
    sys.path[:_searched] = paths
    _searched = len(paths)


def _current_folder() -> str | None:
    """None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _script(name: str, arguments: list[str]) -> Program:
    if not name:
        raise ProgramError("the name of the program is empty")
    # As Python does it: `__file__` is absolute, and `sys.path[0]` follows symbolic links.
    path, file = Path(name).absolute(), _absolute(name)
    if pkgutil.get_importer(file) is not None:
        return _folder(name, file, arguments)
    search_path = str(path.resolve().parent)
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ProgramError(f"cannot run {name}: {error.strerror}{_hint(name)}") from None
    # As `maybe_pyc_file` in CPython's Python/pythonrun.c has it.
    if path.suffix == ".pyc" or source[:2] == importlib.util.MAGIC_NUMBER[:2]:
        compiled = SourcelessFileLoader("__main__", file)
        code = _loaded(compiled, "__main__", name)
        return Program([code], name, file, search_path, None, compiled, arguments)
    notebook = _notebook(path, source) if path.suffix == ".ipynb" else None
    codes = [_compile(source, file)] if notebook is None else notebook.codes
    loader = SourceFileLoader("__main__", file)
    return Program(codes, name, file, search_path, None, loader, arguments, notebook)


def _absolute(name: str) -> str:
    """As Python makes it: a ``./`` stays where it is (``_Py_abspath`` in Python/fileutils.c)."""
    if os.name == "nt":
        return os.path.abspath(name)
    return os.path.join(_current_folder() or "", name)


def _folder(name: str, path: str, arguments: list[str]) -> Program:
    """The ``__main__`` of a folder or of an archive."""
    spec = PathFinder.find_spec("__main__", [path])
    if spec is None or spec.loader is None:
        is_folder = os.path.isdir(path)
        without = _no_main(name) if is_folder else f"cannot run {name}: it has no __main__.py"
        raise ProgramError(without)
    code = _loaded(spec.loader, spec.name, name)
    return Program([code], name, spec.origin, path, spec, spec.loader, arguments)


def _loaded(loader: object, module: str, name: str) -> CodeType:
    """The code of a module.

    Raises:
        ProgramError: If it has none.
    """
    try:
        code = getattr(loader, "get_code", lambda _: None)(module)
    except SyntaxError as error:
        raise ProgramError(_not_python(error.filename or name, error)) from None
    except (ImportError, ValueError, EOFError, OSError) as error:
        raise ProgramError(f"cannot run {name}: {error}") from None
    if not isinstance(code, CodeType):
        raise ProgramError(f"cannot run {name}: it contains no Python code")
    return code


def _no_main(folder: str) -> str:
    scripts = sorted(path.name for path in Path(folder).glob("*.py"))
    meant = f"; did you mean {Path(folder) / scripts[0]}?" if len(scripts) == 1 else ""
    name = Path(folder).name
    if (Path(folder) / "__init__.py").exists() and name.isidentifier():
        meant = f"; to run one of its modules: -m {name}.MODULE"
    return f"cannot run the folder {folder}: it has no __main__.py{meant}"


def _hint(name: str) -> str:
    """What may have been meant by a file that does not exist."""
    from cyclescope._suggest import nearest

    path = Path(name)
    try:
        others = [each.name for each in path.parent.iterdir() if each.suffix in (".py", ".ipynb")]
    except OSError:
        others = []
    # All end in much the same way.
    by_stem = {Path(each).stem: each for each in others}
    near = by_stem.get(nearest(path.stem, by_stem) or "")
    if near is not None:
        return f"; did you mean {path.with_name(near)}?"
    return "; to run a module, use -m" if path.suffix not in (".py", ".ipynb") else ""


def _notebook(path: Path, content: bytes) -> Notebook:
    try:
        return Notebook(path, content)
    except NotebookError as error:
        raise ProgramError(str(error)) from None
    except (SyntaxError, ValueError) as error:
        raise ProgramError(_not_python(str(path), error)) from None


def _code(source: str | bytes, file: str, name: str, arguments: list[str]) -> Program:
    code = _compile(source, file)
    return Program([code], name, None, "", None, BuiltinImporter, arguments)


async def _awaiting(codes: Sequence[CodeType], namespace: dict[str, Any]) -> None:
    """Run the cells of a notebook, some of which await, in one event loop as Jupyter does."""
    for code in codes:
        if code.co_flags & CO_COROUTINE:
            await eval(code, namespace)
        else:
            exec(code, namespace)


def _compile(source: str | bytes, file: str) -> CodeType:
    try:
        return compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise ProgramError(_not_python(file, error)) from None


def _not_python(file: str, error: Exception) -> str:
    text = "".join(traceback.format_exception_only(error)).rstrip()
    return f"{file} is not a Python program\n{text}"


def _module(name: str, arguments: list[str]) -> Program:
    if not name:
        raise ProgramError("the name of the module after -m is empty")
    here = _current_folder()
    if not _is_path_safe():
        _search_first(here)
    # What the packages around it see while they are imported (`pymain_run_python`).
    sys.argv[:] = ["-m", *arguments]
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
            if spec is None:
                raise ProgramError(f"{name} is a package without a __main__ module")
    except (ImportError, ValueError, AttributeError) as error:
        raise ProgramError(f"cannot run the module {name}: {error}") from None
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ProgramError(f"no module named {name}")
    code = _loaded(spec.loader, spec.name, f"the module {name}")
    file = spec.origin or name
    return Program([code], file, file, here, spec, spec.loader, arguments)


def _status(end: SystemExit) -> int:
    try:
        code = end.code
    except BaseException:
        code = end  # type: ignore[assignment]
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    try:
        message = str(code)
    except BaseException:
        message = ""
    _complain(f"{message}\n")
    return 1


def _complain(message: str) -> None:
    """Write to standard error, wherever that is, as far as it can be."""
    for stream in sys.stderr, sys.__stderr__:
        if stream is not None:
            with contextlib.suppress(Exception):
                stream.write(message)
            return
    with contextlib.suppress(OSError):
        os.write(2, message.encode(errors="backslashreplace"))


def flush(stream: TextIO | None) -> bool:
    """Flush a stream of the program's, which may have closed it or put anything in its place.

    False if what was printed cannot be written.
    """
    try:
        cast(TextIO, stream).flush()
    except OSError:
        return False
    except Exception:
        return True
    return True


_MISSING = object()


def _show(error: BaseException) -> int:
    """Show an exception as Python does, without the frames of this file; the exit status.

    ``_PyErr_PrintEx`` in Python/pythonrun.c has what is done if ``sys.excepthook`` fails.
    """
    flush(getattr(sys, "stdout", None))
    _remember(error)
    hook: Any = getattr(sys, "excepthook", _MISSING)
    if hook is _MISSING:
        _complain("sys.excepthook is missing\n")
        hook = sys.__excepthook__
    try:
        hook(type(error), error, error.__traceback__)
    except SystemExit as end:
        return _status(end)
    except BaseException as raised:
        second = trimmed(raised)
        _complain("Error in sys.excepthook:\n")
        sys.__excepthook__(type(second), second, second.__traceback__)
        _complain("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)
    return 1


_remembered: int | None = None
"""The ID of the exception that ended the program, which ``sys`` keeps."""


def _remember(error: BaseException) -> None:
    """Let exit handlers find an exception where ``_PyErr_PrintEx`` puts it."""
    global _remembered
    _remembered = id(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error


def forget_exception() -> None:
    """Let go of the exception that ended the program, as the interpreter does at last.

    Not of one that the program has put there itself, as pytest does.
    """
    if id(getattr(sys, "last_value", None)) == _remembered:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            with contextlib.suppress(AttributeError):
                delattr(sys, name)


def trimmed(error: BaseException) -> BaseException:
    """An exception without the frames of this folder in its traceback, which come first."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).parent == FOLDER:
        trace = trace.tb_next
    return error.with_traceback(trace)
