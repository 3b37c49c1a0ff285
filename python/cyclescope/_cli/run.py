"""``cyclescope run``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from pathlib import Path

import cyclescope
from cyclescope import _native
from cyclescope._cli.common import FORMATS, check_output, fail, write
from cyclescope._cli.program import Program, ProgramError
from cyclescope._live.automatic import AutomaticSteps
from cyclescope._off import OFF, VARIABLE


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = "cyclescope run [options] SCRIPT|-m MODULE [arguments]"
    parser.epilog = (
        "Exits with the status of the program. With --fail-on-leak, if that is 0, with 1 if "
        "there were leaks. On many GPUs: torchrun ... -m cyclescope run SCRIPT. With "
        "CYCLESCOPE_OFF set, the program is not watched, and nothing is written."
    )
    parser.add_argument(
        "--devices",
        metavar="DEVICES",
        help="which memory to watch, such as cuda or cuda:0,cpu (default: cuda, or any on a "
        "machine without it)",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="NAME",
        help="a signature, pattern or library not to tell of; may be repeated",
    )
    parser.add_argument("--report-dir", metavar="DIR", help="where pages go (default: temporary)")
    parser.add_argument(
        "-o",
        "--output",
        action="append",
        default=[],
        metavar="FILE",
        help=f"write all leaks at the end, the ending says as what: {', '.join(FORMATS)}; in a "
        "job of many ranks, each has its number in the name; may be repeated",
    )
    parser.add_argument("--trace", action="store_true", help="print the leak traces at the end")
    parser.add_argument(
        "--record-history",
        action="store_true",
        default=None,
        help="have PyTorch record what allocates memory on a GPU",
    )
    parser.add_argument(
        "--redact",
        action="store_true",
        help="leave values and strings of the program, and folders, out of all reports",
    )
    parser.add_argument(
        "--growth",
        action="store_true",
        help="tell what grows with the steps of the program's optimizers, or with time, on a page "
        "too",
    )
    parser.add_argument(
        "--oom", action="store_true", help="write a post-mortem when a GPU runs out of memory"
    )
    parser.add_argument("--fail-on-leak", action="store_true", help="exit with 1 if there is any")
    parser.add_argument("-m", dest="module", action="store_true", help="it is a module's name")
    parser.add_argument("program", metavar="SCRIPT", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(parsed: argparse.Namespace) -> int:
    """Run the program in this process, as Python would, and look for leaks until its end."""
    for output in parsed.output:
        check_output(parsed, output)
    try:
        program = Program.find(parsed.program, parsed.arguments, is_module=parsed.module)
        program.announce()
    except (ProgramError, ValueError, OSError) as error:
        fail(parsed, str(error))
    if OFF:
        print(
            f"cyclescope: off ({VARIABLE} is set), nothing is watched or written", file=sys.stderr
        )
        return program.run()
    try:
        watch = cyclescope.warn_tensor_cycles(
            devices=_devices(parsed),
            report_dir=parsed.report_dir,
            ignore=parsed.ignore,
            record_history=parsed.record_history,
            redact=parsed.redact,
        )
        oom = cyclescope.on_oom(parsed.report_dir) if parsed.oom else None
        growth = _growth(parsed) if parsed.growth else None
    except (ValueError, OSError) as error:
        fail(parsed, str(error))
    try:
        status = program.run()
        _wait_for_threads()
    finally:
        if oom is not None:
            oom.stop()
        if growth is not None:
            growth.stop()
        # Whatever ended the program, what leaked until then is told, by the watch.
        _look(watch)
    _tell_pages(parsed, oom, growth)
    report = watch.report
    if report is not None:
        if os.environ.get("GITHUB_ACTIONS") == "true":
            print("\n".join(cyclescope.to_github_annotations(report)))
        if parsed.trace:
            print(report.to_text())
    for output in map(_of_this_rank, parsed.output):
        # That there was nothing is a result too, and what an earlier run has left is none.
        write(parsed, str(output), FORMATS[output.suffix](report or _native.empty_report()))
    grew = growth is not None and growth.found
    if status == 0 and parsed.fail_on_leak and (watch.leaks or grew):
        return 1
    return status


def _devices(parsed: argparse.Namespace) -> list[str] | None:
    if parsed.devices is not None:
        return [name.strip() for name in parsed.devices.split(",") if name.strip()]
    if cyclescope.settings().devices is not None or _native.cuda_driver_present():
        return None
    return ["any"]


def _of_this_rank(output: str) -> Path:
    """The ranks of a job are given the same arguments, and none is to overwrite another's file."""
    path, rank = Path(output), cyclescope.current_rank()
    if rank is None or rank.world_size == 1:
        return path
    return path.with_name(f"{path.stem}-rank{rank.rank}{path.suffix}")


def _growth(parsed: argparse.Namespace) -> AutomaticSteps:
    return AutomaticSteps(cyclescope.watch_growth(devices=_devices(parsed)))


def _tell_pages(
    parsed: argparse.Namespace, oom: cyclescope.OomWatch | None, growth: AutomaticSteps | None
) -> None:
    """Say where the pages of live memory are, and write that of what grows."""
    if growth is not None and growth.found:
        folder = parsed.report_dir or cyclescope.settings().report_dir
        try:
            page = growth.monitor.write(folder or tempfile.mkdtemp(prefix="cyclescope-"))
            print(f"cyclescope: what grows: {page}", file=sys.stderr)
        except OSError as error:
            print(f"cyclescope: no page of what grows: {error}", file=sys.stderr)
    for report in oom.reports if oom is not None else ():
        page = report.with_suffix(".html")
        where = page if page.exists() else report
        print(f"cyclescope: post-mortem: {where}", file=sys.stderr)


def _look(watch: cyclescope.Watch) -> None:
    _native.find(["any"], [])
    watch.flush()


def _wait_for_threads() -> None:
    """The interpreter waits for them at its end; what they leak counts too."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
