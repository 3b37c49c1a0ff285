"""``cyclescope attach``."""

from __future__ import annotations

import argparse
import ast
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from cyclescope import _native
from cyclescope._attach.request import SECONDS, AttachError, ask, wait
from cyclescope._cli import progress
from cyclescope._cli.common import fail, print_json
from cyclescope._cli.output import out, tell
from cyclescope._devices import device_names
from cyclescope._native import CycleReport, Heap, HeapDiff, Retention
from cyclescope._settings import check_number, settings

Result: TypeAlias = CycleReport | Heap | HeapDiff | Retention

EPILOG = """\
examples:
  cyclescope attach 4242                        # reference cycles and live memory
  cyclescope attach 4242 --why train.history
  cyclescope attach 4242 --growth 60 --json
  cyclescope attach 4242 --watch --report-dir leaks

The process needs the same version of Python as this command, 3.14 or later. It does not need
cyclescope. The exit status is 2 if the process cannot be inspected.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("pid", type=int, metavar="PID", help="the process ID")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument(
        "--cycles",
        action="store_true",
        help="the reference cycles that hold memory now; nothing is collected (default: these and "
        "live memory)",
    )
    parts.add_argument("--heap", action="store_true", help="live memory and its owners")
    parts.add_argument(
        "--why",
        metavar="NAME",
        help="what keeps an object alive, such as model, train.history or train.batches[0]",
    )
    parts.add_argument(
        "--growth",
        type=float,
        metavar="SECONDS",
        help="inspect live memory twice, SECONDS apart, and print what has grown",
    )
    parts.add_argument(
        "--watch",
        action="store_true",
        help="import cyclescope there and call warn_tensor_cycles(), until the process ends",
    )
    parser.add_argument(
        "--devices",
        metavar="DEVICES",
        help="which memory to look for in cycles, such as cuda or cuda:0,cpu (default: any)",
    )
    parser.add_argument("--report-dir", metavar="DIR", help="folder for the pages of --watch")
    parser.add_argument(
        "--redact",
        action="store_true",
        help="leave the program's data and folders out of the result, and of all reports of the "
        "process from now on",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=SECONDS,
        metavar="SECONDS",
        help=f"how long the process may take to answer (default: {SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


LONGEST = 999_999.0
"""Seconds, at most: eleven days."""


def run(parsed: argparse.Namespace) -> int:
    """Ask the process, and print what it answers."""
    try:
        check_number("--timeout", parsed.timeout, at_most=LONGEST)
        if parsed.report_dir is not None and not parsed.watch:
            fail(
                parsed, "--report-dir is the folder for the pages of --watch: give both or neither"
            )
        if parsed.report_dir == "":
            fail(parsed, "--report-dir is empty")
        if parsed.devices is not None and not _looks_for_cycles(parsed):
            fail(
                parsed,
                "--devices is which memory to look for in cycles: leave it out with --heap, --why "
                "and --growth, which take in all memory",
            )
        with _ended_in_order():
            if parsed.watch:
                return _watch(parsed)
            results = _results(parsed)
    except (AttachError, ValueError) as error:
        fail(parsed, str(error))
    progress.done()
    if parsed.json:
        out(_json(results))
    else:
        out("\n\n".join(each.to_text().rstrip() for each in results.values()))
    return 0


def _looks_for_cycles(parsed: argparse.Namespace) -> bool:
    return not parsed.heap and parsed.why is None and parsed.growth is None


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Have the request withdrawn if this command is ended by a signal."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    is_main = threading.current_thread() is threading.main_thread()
    # `nohup` has it ignore one.
    ending = [it for it in numbers if it and is_main and signal.getsignal(it) == signal.SIG_DFL]
    before = {each: signal.signal(each, end) for each in ending}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _results(parsed: argparse.Namespace) -> dict[str, Result]:
    if parsed.growth is not None:
        check_number("--growth", parsed.growth, at_most=LONGEST)
        before = Heap.from_json(_ask(parsed, ["heap"])["heap"])
        progress.say(f"waiting for {parsed.growth:g} s")
        wait(parsed.pid, parsed.growth)
        return {"growth": Heap.from_json(_ask(parsed, ["heap"])["heap"]).diff(before)}
    if parsed.why is not None:
        answer = _ask(parsed, ["why"], name=steps(parsed.why))
        return {"why": Retention.from_json(answer["why"])}
    names = [each for each in ("cycles", "heap") if getattr(parsed, each)] or ["cycles", "heap"]
    answer = _ask(parsed, names)
    found: dict[str, Result] = {}
    if "cycles" in answer:
        found["cycles"] = report = CycleReport.from_json(answer["cycles"])
        if not report.leaks:
            _tell_if_blind(parsed)
    if "heap" in answer:
        found["heap"] = Heap.from_json(answer["heap"])
    return found


def _tell_if_blind(parsed: argparse.Namespace) -> None:
    """Say that nothing could be found, if only GPU memory was looked for where there is none."""
    kinds = {name.partition(":")[0] for name in _devices(parsed, "any") or ()}
    if kinds <= {"cuda", "gpu"} and not _native.cuda_driver_present():
        tell(
            "cyclescope attach: only GPU memory was looked for, and this machine has no CUDA "
            "driver: use --devices any"
        )


def _ask(
    parsed: argparse.Namespace, what: list[str], name: list[tuple[str, object]] | None = None
) -> dict[str, str]:
    progress.say(f"waiting for process {parsed.pid}")
    return ask(
        parsed.pid,
        what,
        timeout=parsed.timeout,
        name=name,
        devices=_devices(parsed, "any"),
        redact=parsed.redact or settings().redact,
    )


def _watch(parsed: argparse.Namespace) -> int:
    folder = parsed.report_dir or settings().report_dir
    ask(
        parsed.pid,
        "watch",
        timeout=parsed.timeout,
        devices=_devices(parsed, None),
        report_dir=None if folder is None else str(Path(folder).absolute()),
        redact=parsed.redact or settings().redact,
    )
    if parsed.json:
        print_json({"pid": parsed.pid, "watched": True})
    tell(
        f"process {parsed.pid} is watched until it ends; it logs its leaks on the logger "
        "`cyclescope`, or to standard error if it has configured no logging"
    )
    return 0


def _devices(parsed: argparse.Namespace, default: str | None) -> list[str] | None:
    if parsed.devices is not None:
        return device_names([each.strip() for each in parsed.devices.split(",") if each.strip()])
    return None if default is None else [default]


def _json(results: dict[str, Result]) -> str:
    if len(results) == 1:
        return next(iter(results.values())).to_json()
    return json.dumps({name: json.loads(each.to_json()) for name, each in results.items()})


def steps(name: str) -> list[tuple[str, object]]:
    """The parts of a name such as ``train.batches[0]``: attributes and items.

    Raises:
        ValueError: If it is no such name.
    """
    found: list[tuple[str, object]] = []
    try:
        node = ast.parse(name.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        node = ast.Constant(None)
    while True:
        if isinstance(node, ast.Attribute):
            found.append((".", node.attr))
            node = node.value
        elif isinstance(node, ast.Subscript) and isinstance(key := _key(node.slice), (int, str)):
            found.append(("[", key))
            node = node.value
        elif isinstance(node, ast.Name):
            return [(".", node.id), *reversed(found)]
        else:
            raise ValueError(
                "--why takes a name, such as model, train.history or train.batches[0], not "
                f"{name!r}"
            )


def _key(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
