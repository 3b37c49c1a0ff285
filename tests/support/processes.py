"""Programs in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import Any


def run(source: str, **environment: str) -> Any:
    """The JSON that a program printed last. Nothing may appear on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONWARNINGS": "ignore"}
        | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])
