"""The lines that add to what grows, in programs of one and of several files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.marks import needs_torch
from support.processes import python

pytestmark = needs_torch

RUN = """
import json, torch, cyclescope
import program
monitor = cyclescope.LeakMonitor(every=1, devices="any", min_bytes=0)
step = program.begin()
with monitor:
    for number in range(40):
        step(number)
        monitor.step()
print(json.dumps([(it.owner, [line.marked for line in it.added_at]) for it in monitor.found]))
print(monitor.found[0].to_text() if monitor.found else "")
"""

PROGRAMS = {
    "an attribute that is bound with others": """
class Trainer:
    def __init__(self):
        self.seen, self.kept = set(), []

    def step(self, number):
        self.kept.append(torch.zeros(500))  # here
        self.seen.add(number)

def begin():
    return Trainer().step
""",
    "an attribute": """
class Trainer:
    def __init__(self):
        self.outputs = []

    def step(self, number):
        self.outputs.append(torch.zeros(500))  # here

class Other:
    def step(self):
        self.outputs.append(torch.ones(3))

def begin():
    return Trainer().step
""",
    "an attribute of a base class, filled by another object": """
class Base:
    def __init__(self):
        self.outputs = []

    def collect(self, output):
        self.outputs.append(output)  # here

class Trainer(Base):
    pass

def begin():
    trainer = Trainer()
    return lambda number: trainer.collect(torch.zeros(500))
""",
    "one of two lines": """
class Trainer:
    def __init__(self):
        self.outputs = {}

    def step(self, number):
        if number % 2:
            self.outputs[number] = torch.zeros(500)  # here
        else:
            self.outputs.update({number: torch.zeros(500)})  # here

def begin():
    return Trainer().step
""",
    "what is behind a key": """
class Trainer:
    def __init__(self):
        self.meters = {"loss": [], "rate": []}

    def step(self, number):
        self.meters["loss"].append(torch.zeros(500))  # here
        self.meters["rate"].append(number)

def begin():
    return Trainer().step
""",
    "what is at an index": """
class Trainer:
    def __init__(self):
        self.parts = [[], []]

    def step(self, number):
        self.parts[0].append(number)
        self.parts[1].append(torch.zeros(500))  # here

def begin():
    return Trainer().step
""",
    "a variable that has the container": """
class Trainer:
    def __init__(self):
        self.outputs = []

    def step(self, number):
        outputs = self.outputs
        outputs.append(torch.zeros(500))

def begin():
    return Trainer().step
""",
    "a variable of the module": """
OUTPUTS = []

def other():
    OUTPUTS = []
    OUTPUTS.append(torch.ones(3))

def step(number):
    OUTPUTS.append(torch.zeros(500))  # here

def begin():
    return step
""",
    "a class attribute": """
class Sample:
    instances = []

    def __init__(self):
        self.value = torch.zeros(500)
        Sample.instances.append(self)  # here

def begin():
    return lambda number: Sample()
""",
    "a tensor that becomes longer": """
class Decoder:
    def __init__(self):
        self.past = torch.zeros(1, 500)

    def step(self, number):
        new = torch.zeros(1, 500)
        self.past = torch.cat([self.past, new])  # here

def begin():
    return Decoder().step
""",
    "a list that is made anew of itself": """
class Trainer:
    __slots__ = ("outputs",)

    def __init__(self):
        self.outputs = []

    def step(self, number):
        self.outputs = [*self.outputs, torch.zeros(500)]  # here

def begin():
    return Trainer().step
""",
    "a state with its graph": """
class Agent:
    def __init__(self):
        self.state = torch.zeros(64, requires_grad=True)
        self.weight = torch.ones(64, requires_grad=True)

    def step(self, number):
        seen = torch.ones(64)
        output, self.state = seen, (self.state + seen) * self.weight  # here
        return output, self.state

def begin():
    return Agent().step
""",
    "a method that makes it of the one before": """
class Agent:
    def __init__(self):
        self.state = torch.zeros(64, requires_grad=True)
        self.past = torch.zeros(1, 500)

    def to(self, device):
        self.state = self.state.to(device)
        self.past = torch.cat([self.past, self.past])

    def advance(self, seen):
        return self.state + seen

    def longer(self):
        return torch.cat([self.past, torch.zeros(1, 500)])

    def step(self, number):
        self.state = self.advance(torch.ones(64))
        self.past = self.longer()

def begin():
    return Agent().step
""",
    "a data class that is given its list": """
from dataclasses import dataclass

@dataclass
class Record:
    items: list

    def load(self):
        self.items.append(torch.ones(3))

class Feeder:
    def __init__(self, queue):
        self.queue = queue

    def step(self, number):
        self.queue.append(torch.zeros(500))

RECORD = None

def begin():
    global RECORD
    shared = []
    RECORD = Record(shared)
    return Feeder(shared).step
""",
    "an attribute by a name that is computed": """
class Trainer:
    def __init__(self):
        self.outputs = []

    def load(self):
        self.outputs.append(torch.ones(3))

    def step(self, number):
        name = "out" + "puts"
        getattr(self, name, "none").append(torch.zeros(500))

def begin():
    return Trainer().step
""",
    "a container that is handed on": """
class Trainer:
    def __init__(self):
        self.outputs = []

    def load(self):
        self.outputs.append(torch.ones(3))

    def step(self, number):
        keep(self.outputs)

def keep(outputs):
    outputs.append(torch.zeros(500))

def begin():
    return Trainer().step
""",
    "a loop over containers": """
class Trainer:
    def __init__(self):
        self.meters = {"loss": [], "rate": []}

    def load(self):
        self.meters["loss"].append(torch.ones(3))

    def step(self, number):
        for meter in self.meters.values():
            meter.append(torch.zeros(500))

def begin():
    return Trainer().step
""",
    "what is read by many": """
class Trainer:
    def __init__(self):
        self.outputs = []

    def step(self, number):
        self.outputs.append(torch.zeros(500))  # here
        if len(self.outputs) > 1 and self.outputs:
            total = sum(self.outputs) + torch.stack(self.outputs[-2:]).sum()
        for output in self.outputs:
            total = output.sum()
        print(f"{len(self.outputs)}", file=None if total is None else __import__("io").StringIO())

    def reset(self):
        self.outputs.clear()

def begin():
    return Trainer().step
""",
    "what a library's class may fill": """
class History(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.items = []

    def forward(self, number):
        add = getattr(self.items, "append")
        add(torch.zeros(500))

def other(history):
    history.items.append(torch.zeros(500))

def begin():
    return History()
""",
    "too many": """
class Trainer:
    def __init__(self):
        self.outputs = []

    def step(self, number):
        if number % 4 == 0:
            self.outputs.append(torch.zeros(500))
        elif number % 4 == 1:
            self.outputs.append(torch.zeros(500))
        elif number % 4 == 2:
            self.outputs.append(torch.zeros(500))
        else:
            self.outputs.append(torch.zeros(500))

def begin():
    return Trainer().step
""",
}


def watched(folder: Path, **files: str) -> tuple[list[list[Any]], str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(f"import torch\n{text}", encoding="utf-8")
    main = folder / "main.py"
    main.write_text(RUN, encoding="utf-8")
    done = python(main, check=True)
    found, _, text = done.stdout.partition("\n")
    return json.loads(found), text


@pytest.mark.parametrize("case", PROGRAMS)
def test_the_lines_that_add_to_it_are_named(case: str, tmp_path: Path) -> None:
    source = PROGRAMS[case]
    found, text = watched(tmp_path, program=source)
    (lines,) = {tuple(lines) for _, lines in found}
    numbered = enumerate(f"import torch\n{source}".splitlines(), 1)
    wanted = [number for number, line in numbered if "# here" in line]
    assert list(lines) == wanted
    places = " or ".join(f"{tmp_path / 'program.py'}:{line}" for line in wanted)
    fix = " ".join(text.split()).partition("Fix: ")[2]
    if wanted:
        assert fix.startswith(f"{places}: ")
    else:
        assert str(tmp_path) not in fix


def test_a_variable_of_another_module_is_filled_by_its_name(tmp_path: Path) -> None:
    program = """
import config as settings
from config import LATER

def begin():
    def step(number):
        settings.OUTPUTS.append(torch.zeros(500))
        LATER.append(torch.zeros(700))
    return step
"""
    found, _ = watched(tmp_path, config="OUTPUTS = []\nLATER = []\n", program=program)
    assert sorted(found) == [
        ["module `config` → `LATER`", [9]],
        ["module `config` → `OUTPUTS`", [8]],
    ]


@pytest.mark.parametrize(
    ("made", "add", "is_advised"),
    [
        ("[]", "KEPT.append(torch.zeros(500))", True),
        ("collections.deque()", "KEPT.append(torch.zeros(500))", True),
        ("{}", "KEPT[number] = torch.zeros(500)", False),
        ("[]", "heapq.heappush(KEPT, (number, torch.zeros(500)))", False),
    ],
)
def test_only_what_can_become_a_deque_is_to_become_one(
    made: str, add: str, is_advised: bool, tmp_path: Path
) -> None:
    text = f"""
import collections, heapq, torch

KEPT = {made}

def step(number):
    {add}

def begin():
    return step
"""
    _, told = watched(tmp_path, program=text)
    told = " ".join(told.split())
    assert "Limit its size" in told
    assert ("`collections.deque(maxlen=...)`" in told) == is_advised
