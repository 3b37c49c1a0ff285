"""What is written as JSON is what the schemas in ``docs/schema/`` promise."""

from __future__ import annotations

import gc
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import cyclescope
from cyclescope import _native
from cyclescope.__main__ import COMMANDS
from support.nodes import SOURCE, Node
from support.processes import python

jsonschema = pytest.importorskip(
    "jsonschema", reason="schemas are checked where requirements/test.txt is installed"
)

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
    return found


def check(name: str, text: str) -> Any:
    """What a text says, once it is valid; and with less in it, or other types, it is not."""
    value = json.loads(text)
    validator = jsonschema.Draft202012Validator(schema(name))
    validator.validate(value)
    for broken in broken_ones(value, schema(name).get("required", list(value))):
        assert not validator.is_valid(broken), broken
    return value


def broken_ones(value: dict[str, Any], required: list[str]) -> Iterator[object]:
    """The value without one of its fields each, and with a field of another type each."""
    yield []
    for key in value:
        if key in required:
            yield {each: value[each] for each in value if each != key}
        yield value | {key: {"another": "type"}}


@pytest.mark.parametrize("file", sorted(SCHEMAS.glob("*.json")), ids=lambda file: file.stem)
def test_the_schemas_are_schemas(file: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(file.stem))


RESULTS: dict[str, Callable[[], str]] = {
    "cycles": lambda: cyclescope.find_tensor_cycles(devices="any").to_json(),
    "heap": lambda: cyclescope.heap().to_json(),
    "heap-table": lambda: cyclescope.heap().top("class").to_json(),
    "heap-diff": lambda: cyclescope.heap().diff(cyclescope.heap()).to_json(),
    "why-alive": lambda: cyclescope.why_alive(KEPT).to_json(),
    "growth": lambda: grown().to_json(),
    "out-of-memory": lambda: _native.Examination("cuda:0", 1.0).found.to_json(),
    "device-memory": lambda: _native.device_memory("cuda:0", (1, 2, 3.0), [], []).to_json(),
}
KEPT: list[object] = [numpy.zeros(2**18)]


def grown() -> cyclescope.LeakMonitor:
    kept = []
    with cyclescope.watch_growth(
        every=1, devices="any", min_bytes=0, max_share=float("inf")
    ) as monitor:
        for _ in range(40):
            kept.append(numpy.zeros(2**17))
            monitor.step()
    return monitor


@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str, collector_paused: None) -> None:
    Node()
    value = check(name, RESULTS[name]())
    if name == "cycles":
        assert value["leaks"]
    elif name == "growth":
        assert value["found"]
    gc.collect()


# Commands


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {key: text for key, text in os.environ.items() if not key.startswith("CYCLESCOPE_")}
    return python(
        *["-m", "cyclescope", *arguments],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(Path(cyclescope.__path__[0]).parent)},
        timeout=200,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the report of a program that leaks, and that of one that does not."""
    made = tmp_path_factory.mktemp("schema")
    (made / "leaky.py").write_text(f"import numpy\n{SOURCE}\nNode()\n")
    (made / "clean.py").write_text("pass\n")
    for name in "leaky", "clean":
        done = command(made, "run", "--devices", "any", "-o", f"{name}.json", f"{name}.py")
        assert done.returncode == 0, done.stderr
    return made


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        ("cycles", ["report", "leaky.json", "--json"], 0),
        ("cycles", ["merge", "leaky.json", "clean.json", "--json"], 0),
        ("cycles", ["run", "--devices", "any", "--json", "leaky.py"], 0),
        ("diff", ["diff", "clean.json", "leaky.json", "--json"], 1),
        ("diff", ["diff", "leaky.json", "clean.json", "--json"], 0),
        ("diff", ["diff", "leaky.json", "leaky.json", "--json"], 0),
        ("fix", ["fix", "leaky.json", "--json"], 1),
        ("fix", ["fix", "leaky.py:1", "--json"], 1),
        ("explain", ["explain", "--json"], 0),
        ("explain", ["explain", "closure-captures-owner", "--json"], 0),
        ("doctor", ["doctor", "--no-gpu", "--json"], 0),
    ],
)
def test_commands(folder: Path, name: str, arguments: list[str], status: int) -> None:
    done = command(folder, *arguments)
    assert done.returncode == status, done.stderr
    value = check(name, done.stdout)
    if arguments[:2] == ["diff", "clean.json"]:
        assert [leak["summary"] for leak in value["new"]] == ["Node.me → Node"]
    if name == "explain":
        assert ("text" in value["pages"][0]) == (len(arguments) == 3)


FIXABLE = """\
import numpy
class Trainer:
    def __init__(self):
        self.array = numpy.zeros(4)
        self.on_step = lambda: self.array.sum()

    def run(self):
        return self.on_step()

trainer = Trainer()
trainer.run()
"""


def test_a_patch_as_json_is_the_patch(folder: Path) -> None:
    (folder / "fixable.py").write_text(FIXABLE)
    plain = command(folder, "fix", "fixable.py:5", "--diff")
    found = check("fix", command(folder, "fix", "fixable.py:5", "--json").stdout)
    assert plain.stdout
    assert plain.stdout == found["patch"]["diff"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_with_a_result_has_json(folder: Path, name: str) -> None:
    # These print a script, what another command prints, and an address.
    is_without = name in ("completion", "demo", "serve")
    assert ("--json" in command(folder, name, "--help").stdout) != is_without
