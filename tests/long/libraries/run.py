"""Popular libraries on tiny random models: what leaks, whose it is, and whether the cut frees it.

    python run.py [--write] [PROGRAM ...]

Each program of ``programs/`` runs bare and under a watch, in a process of its own each: what it
computes must be the same. The leaks that it leaves must be those of the libraries that the program
names in ``MADE_BY``, after somebody who has read their code; with none named there, it must be
clean. The references that a leak's report says are to be removed are removed, with the collector
off, and the memory must go. ``--write`` writes docs/libraries.md. Wants the libraries, but no
network and no GPU: ``make test-libraries`` installs them.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROGRAMS = HERE / "programs"
PAGE = ROOT / "docs" / "libraries.md"
SECONDS = 900
YOURS = "the program"
IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A UUID, which is another in each run."""

HEAD = """# Popular libraries under the watch

Tiny random models on the CPU, of {libraries} libraries, in {programs} programs. Each runs bare and
under a watch of all memory, and computes the same to the last bit. "Cut frees" says whether the
tensors are freed, with the garbage collector off, when the references that the report names are
removed; "not claimed" stands where the report says itself that they are not proven to be enough.
`torch.export` leaves one group of more than 32 cycles, of which eight are reported. The module
`torch._dynamo` is imported beforehand, or whichever program makes the first optimizer would have
the leak `torch-first-optimizer`, too.

{system}. `make test-libraries` repeats the runs, and
`tests/long/libraries/run.py --write` writes this page.

| library | version | what was run | leak | owner | cut frees | known as |
| ------- | ------- | ------------ | ---- | ----- | --------- | -------- |
"""


@dataclass
class Outcome:
    """What came out for one program."""

    name: str
    distribution: str
    what: str
    leaks: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def version(self) -> str:
        return importlib.metadata.version(self.distribution).partition("+")[0]


def put_to_the_test(program: Path) -> Outcome:
    source = ast.parse(program.read_text())
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("DISTRIBUTION", "RANKS", "MADE_BY")
    }
    what = (ast.get_docstring(source) or "").rstrip(".")
    if constants["DISTRIBUTION"] != "torch":
        what = what.partition(": ")[2]
    outcome = Outcome(program.stem, constants["DISTRIBUTION"], what)
    ranks = constants.get("RANKS", 1)
    try:
        bare = child("bare", program.stem, ranks)
        watched = child("watch", program.stem, ranks)
    except (subprocess.SubprocessError, RuntimeError) as error:
        outcome.faults.append(f"could not be run: {error}")
        return outcome
    outcome.leaks = bare["leaks"]
    if outcome.leaks:
        outcome.faults += made(outcome, bare["cut"])
    again = {leak["signature"] for leak in outcome.leaks}
    outcome.leaks += [leak for leak in watched["leaks"] if leak["signature"] not in again]
    if bare["results"] != watched["results"]:
        outcome.faults.append(f"computes {bare['results']} and watched {watched['results']}")
    outcome.faults += wrong_owners(outcome, constants.get("MADE_BY", []))
    return outcome


def child(mode: str, program: str, ranks: int) -> dict[str, Any]:
    """What the program's process says; of several ranks the first one's."""
    paths = [ROOT / "python", ROOT / "tests", HERE, PROGRAMS]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PYTHONHASHSEED": "0",
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "MEETING": f"{folder}/meeting",
            "WORLD_SIZE": str(ranks),
        }
        children = [
            subprocess.Popen(
                [sys.executable, str(HERE / "child.py"), mode, program],
                env=environment | {"RANK": str(rank)},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        try:
            said = [one.communicate(timeout=SECONDS) for one in children]
        finally:
            for one in children:
                one.kill()
                one.wait()
    for one, (_, errors) in zip(children, said, strict=True):
        if one.returncode:
            last = errors.strip().splitlines()[-3:]
            raise RuntimeError(f"{mode} ended with {one.returncode}: {' '.join(last)}")
    result: dict[str, Any] = json.loads(said[0][0].splitlines()[-1])
    return result


def made(outcome: Outcome, after: dict[str, Any]) -> list[str]:
    """Notes with each leak whether the cuts freed it; the faults of those that claimed so."""
    faults = []
    for leak in outcome.leaks:
        freed = after["freed"] > 0 and leak["signature"] not in after["left"]
        leak["freed"] = freed
        if leak["proven"] and not freed:
            faults.append(f"the cuts {leak['cuts']} do not free {leak['summary']}")
    proven = [leak for leak in outcome.leaks if leak["proven"]]
    if len(proven) == len(outcome.leaks):
        faults += after["cannot"]
    return faults


def wrong_owners(outcome: Outcome, made_by: list[str]) -> list[str]:
    faults = [
        f"{leak['summary']} is said to be of {owner(leak)}"
        for leak in outcome.leaks
        if normal(owner(leak)) not in map(normal, made_by)
    ]
    found = {normal(owner(leak)) for leak in outcome.leaks}
    return faults + [f"no leak is of {one}" for one in made_by if normal(one) not in found]


def owner(leak: dict[str, Any]) -> str:
    said: str = leak["owner"] or YOURS
    return said


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


def rows(outcome: Outcome) -> list[str]:
    first = f"| {outcome.distribution} | {outcome.version} | {outcome.what} |"
    if not outcome.leaks:
        return [f"{first} none | | | |"]
    lines = []
    for leak in outcome.leaks:
        frees = {True: "yes", False: "no", None: "seen once"}[leak.get("freed")]
        if not leak["proven"]:
            frees += " (not claimed)"
        named = f"`{leak['pattern']}`" if leak["pattern"] else "a cycle"
        summary = IDENTIFIER.sub("…", leak["summary"].replace("|", "\\|"))
        known = f"`{leak['known']}`" if leak["known"] else ""
        lines.append(f"{first} {named}: `{summary}` | {owner(leak)} | {frees} | {known} |")
    return lines


def row_groups(text: str) -> dict[tuple[str, str], list[str]]:
    """The rows of a page by library and by what was run."""
    groups: dict[tuple[str, str], list[str]] = {}
    for line in text.splitlines():
        cells = line.split(" | ")
        if line.startswith("| ") and len(cells) > 3 and not line.startswith(("| library", "| ---")):
            groups.setdefault((cells[0][2:], cells[2]), []).append(line)
    return groups


def page(outcomes: list[Outcome], before: str) -> str:
    """The page, with what it says of other programs as it was before."""
    groups = row_groups(before)
    for outcome in outcomes:
        groups[outcome.distribution, outcome.what] = rows(outcome)
    texts = [row for _, group in sorted(groups.items(), key=order) for row in group]
    system = f"Python {platform.python_version()}, PyTorch {importlib.metadata.version('torch')}"
    text = HEAD.format(
        libraries=len({distribution for distribution, _ in groups}),
        programs=len(groups),
        system=system.partition("+")[0],
    )
    text += "".join(f"{row}\n" for row in texts)
    entries = json.loads((ROOT / "src/diagnose/known.json").read_text())
    seen = {row.split(" | ")[-1].strip("` |") for row in texts}
    remedies = {entry["name"]: entry["remedy"] for entry in entries if entry["name"] in seen}
    text += "\nRemedies, each tried out by `make test-known`:\n\n"
    return text + "".join(f"- `{name}`: {remedy}\n" for name, remedy in remedies.items())


def order(group: tuple[tuple[str, str], list[str]]) -> tuple[str, str]:
    (distribution, what), _ = group
    return normal(distribution), what


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the rows to docs/libraries.md")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time (default: 2)")
    parser.add_argument("programs", nargs="*", help="names of programs (default: all)")
    args = parser.parse_args()
    wanted = [PROGRAMS / f"{name}.py" for name in args.programs] or sorted(PROGRAMS.glob("*.py"))
    outcomes = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for outcome in pool.map(put_to_the_test, wanted):
            outcomes.append(outcome)
            what = [f"{leak['summary']} ({owner(leak)})" for leak in outcome.leaks] or ["no leak"]
            print(f"{outcome.name}: {'; '.join(what)}", flush=True)
            for fault in outcome.faults:
                print(f"    FAULT: {fault}", flush=True)
    if args.write:
        before = PAGE.read_text() if args.programs else ""
        PAGE.write_text(page(outcomes, before))
    return 1 if any(outcome.faults for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
