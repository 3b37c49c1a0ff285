"""Is each entry of known.json true? Installs the versions it names, runs the leak, looks.

Every entry has a program beside this file. At each version in ``versions`` its ``leak()`` must be
found and named; at ``fixed_in`` it must leave no leak. Where the remedy is code, ``remedied()``
shows that it works. Wants the network, and takes minutes: ``make test-known``. The environments
stay in ``.venvs/known`` and see the packages of the interpreter that runs this, PyTorch among them.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ENVIRONMENTS = ROOT / ".venvs" / "known"


class NoSuchPackage(Exception):
    """The index has a version of a library for other Pythons only: run this with one of those."""


def main() -> int:
    entries = json.loads((ROOT / "src/diagnose/known.json").read_text())
    wanted = set(sys.argv[1:])
    failures = 0
    for entry in entries:
        if wanted and entry["name"] not in wanted and entry["program"] not in wanted:
            continue
        for version in [*entry["versions"], entry.get("fixed_in")]:
            if version is None:
                continue
            try:
                complaint = check(entry, version)
            except NoSuchPackage:
                python = "{}.{}".format(*sys.version_info)
                print(f"{entry['name']}: {entry['library']} {version}: none for Python {python}")
                continue
            except subprocess.CalledProcessError as error:
                complaint = f"could not be run: {error}"
            failures += complaint is not None
            verdict = complaint or "as the list says"
            print(f"{entry['name']}: {entry['library']} {version}: {verdict}", flush=True)
    return 1 if failures else 0


def check(entry: dict[str, Any], version: str) -> str | None:
    """What is not as the entry says at a version of its library; None if all is."""
    python = environment(entry.get("distribution", entry["library"]), version)
    clean = version == entry.get("fixed_in")
    found = look(python, entry, "leak")
    if clean:
        return f"leaks in another way: {found['leaks']}" if found["leaks"] else None
    if [entry["name"], entry["library"]] not in found["leaks"]:
        return f"not found, but {found['leaks']}"
    if found["not ignored"]:
        return f"ignore={entry['library']!r} lets through {found['not ignored']}"
    if "def remedied()" in program(entry).read_text():
        left = look(python, entry, "remedied")["leaks"]
        if left:
            return f"the remedy leaves {left}"
    return None


def program(entry: dict[str, Any]) -> Path:
    return HERE / f"{entry['program']}.py"


def environment(distribution: str, version: str) -> str:
    """An interpreter that has this version of the library, made where there is none yet."""
    try:
        if importlib.metadata.version(distribution).partition("+")[0] == version:
            return sys.executable
    except importlib.metadata.PackageNotFoundError:
        pass
    folder = ENVIRONMENTS / f"{distribution}-{version}"
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder))
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
        quiet = ["--quiet", "--disable-pip-version-check"]
        install = ["-m", "pip", "install", *quiet, f"{distribution}=={version}"]
        installed = subprocess.run([str(python), *install], stderr=subprocess.PIPE, text=True)
        if "No matching distribution" in installed.stderr:
            raise NoSuchPackage
        sys.stderr.write(installed.stderr)
        installed.check_returncode()
        done.touch()
    return str(python)


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def look(python: str, entry: dict[str, Any], function: str) -> dict[str, Any]:
    """What a fresh interpreter finds after one call of a function of the entry's program."""
    paths = [str(ROOT / "python"), str(HERE)]
    done = subprocess.run(
        [python, __file__, "--look", entry["program"], function, entry["library"]],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def looked_at(name: str, function: str, library: str) -> dict[str, Any]:
    """What is found after one call, and after another of what is not ignored."""
    import cyclescope

    module = importlib.import_module(name)
    gc.collect()
    gc.disable()
    getattr(module, function)()
    report = cyclescope.find_tensor_cycles(devices="any")
    getattr(module, function)()
    rest = cyclescope.find_tensor_cycles(devices="any", ignore=[library])
    return {
        "leaks": [
            [leak.known.name, leak.known.library] if leak.known else [leak.summary, None]
            for leak in report.leaks
        ],
        "not ignored": [leak.summary for leak in rest.leaks],
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--look"]:
        print(json.dumps(looked_at(*sys.argv[2:5])))
    else:
        sys.exit(main())
