"""Programs that a test starts, and talks to while they run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path

SECONDS = 120.0
"""How long a test waits for what comes at once on an idle machine."""


class Started:
    """A program that runs. It prints to a file, so that it never waits for its reader."""

    def __init__(
        self, folder: Path, source: str, environment: Mapping[str, str], options: list[str]
    ) -> None:
        self._output, self._errors = folder / "output", folder / "errors"
        self._read = 0
        kept = {key: text for key, text in os.environ.items() if not key.startswith("CYCLESCOPE_")}
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *options, "-c", textwrap.dedent(source)],
                env={**kept, **environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                cwd=folder,
            )
        self.pid = self.process.pid

    @property
    def errors(self) -> str:
        """What it has written to standard error."""
        return self._errors.read_text("utf-8")

    def has_printed(self) -> bool:
        """Whether there is another line."""
        return "\n" in self._output.read_text("utf-8")[self._read :]

    def line(self) -> str:
        """The next line that it prints."""
        self.wait(self.has_printed)
        text = self._output.read_text("utf-8")[self._read :].partition("\n")[0]
        self._read += len(text) + 1
        return text

    def go_on(self) -> None:
        """Write a line to its standard input, for which it waits."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def wait(self, is_there: Callable[[], bool]) -> None:
        """Wait for something that it does."""
        deadline = time.monotonic() + SECONDS
        while not is_there():
            # What it did last is there once it has ended.
            if self.process.poll() is not None and not is_there():
                raise AssertionError(f"it ended: {self.process.returncode} {self.errors}")
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.01)

    def kill(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
