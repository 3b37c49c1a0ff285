"""Programs in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def python(
    *arguments: str | Path,
    timeout: float | None = None,
    check: bool = False,
    cwd: Path | None = None,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
    encoding: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """What this Python does with these arguments, and what it writes."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=check,
        cwd=cwd,
        input=input,
        env=env,
        encoding=encoding,
    )


def run(source: str, **environment: str) -> Any:
    """The JSON that a program printed last. Nothing may appear on standard error."""
    done = python(
        "-c",
        textwrap.dedent(source),
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONWARNINGS": "ignore"}
        | environment,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])
