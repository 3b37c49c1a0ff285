"""``cyclescope run``."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cyclescope
from cyclescope import _native, _ranks
from cyclescope._cli.common import (
    FORMATS,
    STANDARD,
    add_format,
    check_output,
    fail,
    rendered,
    try_to_write,
)
from cyclescope._cli.output import OutputError, finish, keep_streams, out, tell
from cyclescope._cli.program import (
    Program,
    ProgramError,
    flush,
    forget_exception,
    run_exit_handlers,
    trimmed,
)
from cyclescope._devices import blindness
from cyclescope._files import (
    exists,
    is_stream,
    make_folder,
    reason,
    temporary_folder,
    why_unwritable,
    write_whole,
)
from cyclescope._live.automatic import AutomaticSteps
from cyclescope._live.device_memory import gpus_in_use
from cyclescope._live.redaction import shown_error
from cyclescope._native import CycleReport
from cyclescope._off import OFF, VARIABLE
from cyclescope._settings import settings
from cyclescope._system import collect, environment, getpid
from cyclescope._warner import Warner
from cyclescope._watch import say_unseen, uninspected

FLUSH_SECONDS = 5.0
"""How long the end of the program waits for reports that are still being written."""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = (
        "cyclescope run [options] (SCRIPT | NOTEBOOK.ipynb | -m MODULE | -c CODE | -) [arguments]"
    )
    parser.description = (
        "Run a program and report its leaks. Put the options of this command before the program; "
        "everything after the program is passed to it."
    )
    parser.epilog = (
        "The exit status is the program's, or 2 if it succeeds but a file of -o cannot be written. "
        "With --fail-on-leak, it is 1 if the program succeeds but leaks (or, with --growth, "
        "accumulates memory), and 2 if leaks may have gone unseen. For several GPUs: torchrun ... "
        "-m cyclescope run SCRIPT. If CYCLESCOPE_OFF is set, the program runs unwatched."
    )
    _add_options_of_watch(parser)
    _add_options_of_end(parser)
    add_format(parser, "JSON on standard output", json_too=False)
    parser.add_argument(
        "--json",
        action="store_true",
        dest="prints_json",
        help="print the report as JSON when the program ends, also beside a file of -o",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "-m", dest="kind", action="store_const", const="module", help="run a module, as python -m"
    )
    kinds.add_argument(
        "-c", dest="kind", action="store_const", const="code", help="run CODE, as python -c"
    )
    parser.add_argument(
        "program",
        metavar="SCRIPT",
        nargs=argparse.PARSER,
        action=_ProgramAndArguments,
        help="the program: a file, a folder or archive with a __main__.py, a notebook (.ipynb), or "
        "- for standard input",
    )


class _ProgramAndArguments(argparse.Action):
    """Takes the program, and leaves what is behind it as it is: a ``--`` too."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        # A `--` before the program ends the options of the command.
        program, *arguments = values[1:] if values[0] == "--" and values[1:] else values
        namespace.program, namespace.arguments = program, arguments


def _add_options_of_watch(parser: argparse.ArgumentParser) -> None:
    """What is watched, and where the reports go."""
    parser.add_argument(
        "--devices",
        metavar="DEVICES",
        help="which memory to watch, such as cuda or cuda:0,cpu (default: gpu, or any if there "
        "is no accelerator)",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="NAME",
        help="ignore leaks with this signature, pattern or library; may be repeated",
    )
    parser.add_argument(
        "--report-dir",
        metavar="DIR",
        help="folder for the reports, as HTML pages and JSON (default: a temporary folder)",
    )
    parser.add_argument(
        "-o",
        "--output",
        action="append",
        default=[],
        metavar="FILE",
        help="write all leaks to FILE, or to standard output if it is -, when the program ends; "
        "FILE is also written with each new leak, in case the program is killed; "
        f"the extension sets the format: {', '.join(FORMATS)}; in a distributed job, each rank "
        "adds its number to the name; may be repeated",
    )
    parser.add_argument(
        "--trace", action="store_true", help="print the leak traces when the program ends"
    )
    parser.add_argument(
        "--record-history",
        action="store_true",
        default=None,
        help="have PyTorch record the stack of each GPU allocation",
    )
    parser.add_argument(
        "--redact",
        action="store_true",
        help="leave the program's data and folders out of all reports",
    )
    parser.add_argument(
        "--min-bytes",
        type=_number_of_bytes,
        metavar="N",
        help="report a leak once it has held N bytes in total (default: 1 MiB of host memory, any "
        "device memory; 0 with --fail-on-leak)",
    )


def _add_options_of_end(parser: argparse.ArgumentParser) -> None:
    """What else is looked for, and what the end of the program says."""
    parser.add_argument(
        "--growth",
        action="store_true",
        help="report tensors and objects that accumulate over optimizer steps or over time, with "
        "an HTML page",
    )
    parser.add_argument(
        "--oom", action="store_true", help="write a post-mortem when a GPU runs out of memory"
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="when the program ends, say what the memory of each GPU is used for, with an HTML "
        "page",
    )
    parser.add_argument(
        "--fail-on-leak",
        action="store_true",
        help="exit with status 1 if there is a leak that was reported, or, with --growth, "
        "something that accumulates",
    )


def _number_of_bytes(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes, such as 1048576")
    return int(text)


def _min_bytes(parsed: argparse.Namespace) -> int | None:
    if parsed.min_bytes is None and parsed.fail_on_leak and settings().min_bytes is None:
        return 0
    given: int | None = parsed.min_bytes
    return given


def _given(parsed: argparse.Namespace) -> list[str]:
    """The arguments of the watch that the command line gives, and the program cannot change."""
    names = ["devices", "report_dir", "record_history"]
    given = [name for name in names if getattr(parsed, name) is not None]
    return given if _min_bytes(parsed) is None else [*given, "min_bytes"]


def run(parsed: argparse.Namespace) -> int:
    """Run the program in this process, as Python would, and watch it until it ends."""
    if parsed.prints_json or (parsed.format is not None and not parsed.output):
        parsed.output = [*parsed.output, STANDARD]
    for output in parsed.output:
        check_output(parsed, output)
        # Rather now than when the program has run for days.
        if output != STANDARD and (why := why_unwritable(Path(output))) is not None:
            fail(parsed, f"cannot write {output}: {why}")
    # The program may put streams of its own in the place of these, and change folders.
    keep_streams()
    folder = _current_folder()
    try:
        program = Program.find(parsed.program, parsed.arguments, parsed.kind)
        program.announce()
    except (ProgramError, ValueError, OSError) as error:
        fail(parsed, str(error))
    if OFF:
        with _errors(parsed):
            _start(parsed)
        tell(f"cyclescope is off ({VARIABLE} is set): nothing is watched or written")
        return program.run()
    if "--fail-on-leak" in parsed.arguments:
        # Who has put it there would take a status of 0 for "no leaks".
        tell(
            "cyclescope run: --fail-on-leak follows the program and is passed to it. To fail on "
            "leaks, put it before the program."
        )
    with _errors(parsed):
        watch = _start(parsed)
        files = _Files(parsed, folder)
        if isinstance(watch, Warner):
            watch.belong_to_command(_given(parsed), files.keep if parsed.output else None)
        oom = cyclescope.on_oom(parsed.report_dir) if parsed.oom else None
        growth = _growth(parsed) if parsed.growth else None
    is_flushed = True
    short: str | None = None
    process = getpid()
    # What the command has left behind is not the program's.
    collect()
    try:
        status = program.run()
        if getpid() != process:
            return status  # A child that the program has forked: the results are its parent's.
        _wait_for_threads()
        if parsed.memory:
            _tell_memory(parsed)
        run_exit_handlers()
        if getpid() != process:
            return status
        is_flushed = flush(getattr(sys, "stdout", None))
    finally:
        if getpid() == process:
            if oom is not None:
                oom.stop()
            if growth is not None:
                growth.stop()
            # However the program ended, the watch reports what leaked until then.
            forget_exception()
            short = _look(watch)
    try:
        return _end(parsed, status, watch, oom, growth, files, short, is_flushed)
    except Exception as error:
        # As where the program has emptied `sys.modules`. Its status is still its own.
        tell(f"cyclescope run: error: the results are not complete: {shown_error(error)}")
        return status or 2


def _end(
    parsed: argparse.Namespace,
    status: int,
    watch: cyclescope.Watch,
    oom: cyclescope.OomWatch | None,
    growth: AutomaticSteps | None,
    files: _Files,
    short: str | None,
    is_flushed: bool,
) -> int:
    """Say what was found, and return the status."""
    # Not by the log alone, which may be off: whoever reads the status is to know.
    limits: list[str] = []
    is_blind = say_unseen(limits.append)
    if (sentence := uninspected()) is not None:
        limits.append(sentence)
    if short is not None:
        limits.append(short)
    for limit in limits:
        is_blind = True
        tell(f"cyclescope: {limit}")
    if (why := _blindness(watch)) is not None:
        limits.append(f"nothing could be found, because only GPU memory is watched and {why}")
        if parsed.fail_on_leak:
            is_blind = True
            tell(f"cyclescope: {limits[-1]}")
    grew = growth is not None and growth.found
    succeeds = _succeeds(status)
    if succeeds and not is_blind and not grew:
        _tell_success(watch)
    _tell_pages(parsed, oom, growth)
    report = watch.report
    result = report or _report_of_run(watch, limits)
    is_whole = succeeds and not limits
    is_written = files.finish(result, is_whole)
    # What a reader no longer takes stays in the buffer, and ends the program as it does without us.
    if is_flushed:
        is_written &= _print(parsed, result)
    reported = [leak for leak in watch.leaks if not isinstance(watch, Warner) or leak.reported]
    leaked = reported or (report is not None and report.leaks)
    if succeeds and parsed.fail_on_leak and (leaked or grew):
        return 1
    is_known = is_written and not (is_blind and parsed.fail_on_leak)
    return 2 if succeeds and not is_known else status


def _succeeds(status: int) -> bool:
    """True for a status that the system takes for 0: all but Windows keep a byte of it."""
    return (status if sys.platform == "win32" else status & 0xFF) == 0


def _start(parsed: argparse.Namespace) -> cyclescope.Watch:
    return cyclescope.warn_tensor_cycles(
        devices=_devices(parsed),
        report_dir=parsed.report_dir,
        ignore=parsed.ignore,
        record_history=parsed.record_history,
        redact=parsed.redact,
        min_bytes=_min_bytes(parsed),
    )


@contextlib.contextmanager
def _errors(parsed: argparse.Namespace) -> Iterator[None]:
    """End the command at an argument or a setting that is wrong."""
    try:
        yield
    except ValueError as error:
        fail(parsed, str(error))
    except OSError as error:
        fail(parsed, reason(error))


def _current_folder() -> Path:
    with contextlib.suppress(OSError):  # It may have been removed.
        return Path.cwd()
    return Path()


class _Files:
    """The files of ``-o``, whose names are relative to a folder.

    They are written with each new leak too: nothing can be written once the program is killed.
    """

    def __init__(self, parsed: argparse.Namespace, folder: Path) -> None:
        self._parsed = parsed
        self._folder = folder
        self._lock = threading.Lock()
        self._is_finished = False

    def keep(self, report: CycleReport) -> None:
        """Write what is known so far. If that fails, the end of the program will say so."""
        with self._lock:
            if not self._is_finished:
                self._write(report, is_whole=False)

    def finish(self, report: CycleReport, is_whole: bool) -> bool:
        """Write all that was found. False if a file cannot be written.

        Args:
            report: What was found.
            is_whole: The program has ended well, and no leak went unseen.
        """
        with self._lock:
            self._is_finished = True
            # That there was nothing is a result too, and what an earlier run has left is none.
            complaints = self._write(report, is_whole)
        for output in self._empty(report, is_whole):
            tell(
                f"cyclescope run: {output} not written: an empty one closes all alerts, and this "
                "run may not have seen all leaks"
            )
        for complaint in complaints:
            tell(f"cyclescope run: error: {complaint}")
        return not complaints

    def _empty(self, report: CycleReport, is_whole: bool) -> list[str]:
        """The files that would say that all leaks are fixed, where that is not known."""
        is_known = is_whole or report.leaks
        return [it for it in self._parsed.output if not is_known and it.endswith(".sarif")]

    def _write(self, report: CycleReport, is_whole: bool) -> list[str]:
        empty = self._empty(report, is_whole)
        named = (it for it in self._parsed.output if it != STANDARD and it not in empty)
        outputs = [_of_this_rank(output, self._folder) for output in named]
        texts = ((output, rendered(self._parsed, output, report)) for output in outputs)
        tried = (try_to_write(output, text, self._folder) for output, text in texts)
        return [complaint for complaint in tried if complaint is not None]


def _print(parsed: argparse.Namespace, report: CycleReport) -> bool:
    """Print what was asked for. False if standard output cannot be written."""
    texts = []
    if environment("GITHUB_ACTIONS") == "true":
        texts += cyclescope.to_github_annotations(report)
    if report.leaks and parsed.trace:
        texts.append(report.to_text())
    if STANDARD in parsed.output:
        text = report.to_json() if parsed.prints_json else rendered(parsed, STANDARD, report)
        texts.append(text.removesuffix("\n"))
    try:
        if texts:
            out(*texts)
            finish()
    except OutputError as error:
        tell(f"cyclescope: cannot write to standard output: {error}")
        return False
    return True


def _blindness(watch: cyclescope.Watch) -> str | None:
    """Why the watch can find nothing; None if it can."""
    return blindness(watch.devices, has_ended=True) if isinstance(watch, Warner) else None


def _tell_success(watch: cyclescope.Watch) -> None:
    """Say that there was no leak, of what was watched."""
    leaks = watch.leaks
    if not isinstance(watch, Warner) or any(leak.reported for leak in leaks):
        return
    if watch.report is not None and watch.report.leaks:
        return  # garbage that no collection frees
    # Some Pythons have collections that nobody can watch.
    is_watched = _native.unseen_collections() is not None
    if not is_watched or _blindness(watch) is not None:
        return
    where = "" if "any" in watch.devices else f" on {', '.join(watch.devices)}"
    ignored = f" (ignored: {', '.join(watch.ignored)})" if watch.ignored else ""
    tell(f"cyclescope: no leaks{where}{_small(leaks)}{ignored}")


def _report_of_run(watch: cyclescope.Watch, limits: list[str]) -> CycleReport:
    """A report without leaks, with what it does not know, or leaves out."""
    notes = [f"{limit[:1].upper()}{limit[1:]}." for limit in limits]
    if _native.unseen_collections() is None:
        notes.append(
            "The collections of this Python cannot be watched: leaks that they freed are not known."
        )
    if not isinstance(watch, Warner):
        return _native.report_of_run([], notes)
    small = [leak for leak in watch.leaks if not leak.reported]
    if small:
        held = _native.human_bytes(_native.total_bytes(small))
        leaks, them = "A small leak", "it"
        if len(small) > 1:
            leaks, held, them = f"{len(small):,} small leaks", f"{held} in total", "them"
        notes.append(f"{leaks} held {held}: `--min-bytes 0` reports {them}.")
    if watch.ignored:
        notes.append(f"Ignored: {', '.join(watch.ignored)}.")
    return _native.report_of_run(watch.devices, notes)


def _small(leaks: list[cyclescope.LeakTally]) -> str:
    if not leaks:
        return ""
    held = f"{_native.human_bytes(_native.total_bytes(leaks))} in total"
    return f" except small ones: {len(leaks)} held {held}; --min-bytes 0 reports them"


def _devices(parsed: argparse.Namespace) -> list[str]:
    if parsed.devices is not None:
        return [name.strip() for name in parsed.devices.split(",") if name.strip()]
    return cyclescope.settings().devices_or(None)


def _of_this_rank(output: str, folder: Path) -> str:
    """The file of this rank: all ranks get the same arguments and must not share a file.

    A device or a pipe, such as ``/dev/stdout``, is what was asked for.
    """
    path, rank = Path(output), cyclescope.current_rank()
    with contextlib.suppress(OSError):  # What cannot be written is said later.
        if is_stream(folder / path):
            return output
    if rank is None:
        return output
    # A launcher that starts a rank again gives it the same arguments, too.
    attempt = environment("TORCHELASTIC_RESTART_COUNT", "").strip()
    again = f"-attempt{attempt}" if attempt.isdecimal() and int(attempt) else ""
    which = "" if rank.world_size == 1 else f"-rank{rank.rank}"
    return str(path.with_name(f"{path.stem}{which}{again}{path.suffix}"))


def _growth(parsed: argparse.Namespace) -> AutomaticSteps:
    return AutomaticSteps(cyclescope.watch_growth(devices=_devices(parsed)))


def _tell_pages(
    parsed: argparse.Namespace, oom: cyclescope.OomWatch | None, growth: AutomaticSteps | None
) -> None:
    """Say whether memory grew, write its page, and print where it and the post-mortems are."""
    if growth is not None:
        tell(f"cyclescope: growth: {growth.monitor.headline}")
    if growth is not None and growth.found:
        try:
            page = growth.monitor.write(_folder(parsed))
            tell(f"cyclescope: growth report: {page}")
        except OSError as error:
            tell(f"cyclescope: cannot write the growth report: {reason(error)}")
    for report in oom.reports if oom is not None else ():
        page = report.with_suffix(".html")
        where = page if exists(page) else report
        tell(f"cyclescope: out-of-memory report: {where}")


def _tell_memory(parsed: argparse.Namespace) -> None:
    """Divide the memory of each GPU in use, write its page, and print where that is."""
    gpus = gpus_in_use()
    if not gpus:
        tell("cyclescope: memory: PyTorch uses no GPU in this process")
        return
    folder = Path(_folder(parsed))
    for number in gpus:
        try:
            memory = cyclescope.memory(number)
            tell(f"cyclescope: memory: {memory.to_text().splitlines()[0]}")
            make_folder(folder)
            page = _free_name(folder, f"memory-{_ranks.stem()}-cuda{number}".replace(".", "_"))
            write_whole(page, memory.to_html())
            tell(f"cyclescope: memory report: {page}")
        except (OSError, RuntimeError) as error:
            tell(f"cyclescope: memory of cuda:{number}: {error}")


def _free_name(folder: Path, stem: str) -> Path:
    """A page that does not exist yet."""
    page, number = folder / f"{stem}.html", 0
    while exists(page):
        number += 1
        page = folder / f"{stem}-{number}.html"
    return page


def _folder(parsed: argparse.Namespace) -> str:
    given = parsed.report_dir or cyclescope.settings().report_dir
    return str(given or temporary_folder())


def _look(watch: cyclescope.Watch) -> str | None:
    """Report what is garbage at the end. A sentence if there is too little memory for that."""
    try:
        _native.find(["any"], [])
        # No greenlet of the program has another turn: without us it would have none.
        _native.flush(FLUSH_SECONDS)
        if isinstance(watch, Warner):
            watch.look_at_frozen()
    except MemoryError:
        return "there was not enough memory to inspect what was garbage at the end of the program"
    except Exception as error:
        return f"what was garbage at the end of the program was not inspected: {shown_error(error)}"
    return None


def _wait_for_threads() -> None:
    """Wait for threads as the interpreter does at exit: their leaks count too.

    That is more than to join them: executors are told to end theirs, and the main thread counts as
    ended (``wait_for_thread_shutdown`` in Python/pylifecycle.c). The interpreter waits once, too,
    also if an interrupt ends its wait.
    """
    process = getpid()
    try:
        shut_down = threading._shutdown  # type: ignore[attr-defined]

        def in_other_processes() -> None:
            if getpid() != process:
                shut_down()

        threading._shutdown = in_other_processes  # type: ignore[attr-defined]
        shut_down()
    except BaseException as error:
        # Such as an interrupt. The interpreter says so and goes on, too.
        _native.ignore(trimmed(error), threading)
