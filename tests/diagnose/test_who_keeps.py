"""What keeps an object is said of the reference by which it does, not of another of the cycle."""

from __future__ import annotations

import asyncio
import collections

import pytest

import cyclescope

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("collector_paused")


class Reader:
    """Its lambda is no default factory, though one is behind it."""

    def __init__(self) -> None:
        self.data = torch.ones(1024)
        self.default = 1
        table: dict[str, int] = collections.defaultdict(lambda: self.default)
        self.callback = lambda: table["a"]


def advice() -> str:
    """What is said of the only leak."""
    (leak,) = cyclescope.find_tensor_cycles(devices="cpu").leaks
    return leak.advice


def test_a_default_factory_behind_a_lambda_is_not_the_lambda() -> None:
    Reader()
    said = advice()
    assert "`Reader.callback`" in said
    assert "`Reader.callback` has as its default factory" not in said


class Task:
    """The program's own: nobody awaits it."""

    error: BaseException | None = None


class Job:
    """Keeps the exception of what it runs."""

    def __init__(self) -> None:
        self.data = torch.ones(1024)
        self.error: BaseException | None = None

    def run(self) -> None:
        """Fails."""
        task = Task()
        try:
            raise RuntimeError
        except RuntimeError as error:
            self.error = task.error = error

    async def wait(self) -> None:
        """Awaits what fails."""
        task = asyncio.create_task(self.fail())
        task.add_done_callback(self.done)
        try:
            await task
        except RuntimeError:
            return

    async def fail(self) -> None:
        """Fails."""
        raise RuntimeError

    def done(self, task: asyncio.Task[None]) -> None:
        """Keeps the exception."""
        self.error = task.exception()


def test_a_class_of_the_program_by_the_name_of_a_task_raises_nothing() -> None:
    Job().run()
    assert "Task" not in advice()


def test_a_task_raises_what_it_keeps() -> None:
    asyncio.run(Job().wait())
    assert "once the Task, which keeps it too, has raised it for the last time" in advice()
