"""What the program's source limits or empties is not told while it may be filling; what nothing
limits is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.marks import needs_torch
from support.processes import python

pytestmark = needs_torch

RUN = """
import importlib, json, sys, cyclescope
told = {}
for name in sys.argv[1:]:
    program = importlib.import_module(name)
    monitor = cyclescope.LeakMonitor(devices="any", min_bytes=0)
    with monitor:
        run = getattr(program, "run", None)
        if run is not None:
            run(monitor.sample)
        else:
            for number in range(24):
                program.step(number)
                monitor.sample()
    limited = json.loads(monitor.to_json())["limited"]
    told[name] = {
        "owners": [it.owner for it in monitor.found if name in it.owner],
        "limited": [
            sorted(line["marked"] for line in it["limited_at"])
            for it in limited if name in it["owner"]
        ],
        "headline": monitor.headline,
    }
    # What another program has is not to be seen as this one's.
    vars(program).clear()
print(json.dumps(told))
"""

IMPORTS = "import collections, heapq, random, torch\n"

FILLING = {
    "an ordered dictionary with a limit": """
class Cache:
    def __init__(self, size=90):
        self.size = size
        self.data = collections.OrderedDict()

    def put(self, key, value):
        self.data[key] = value
        if len(self.data) > self.size:  # here
            self.data.popitem(last=False)  # here

cache = Cache()

def step(number):
    cache.put(number, torch.zeros(5000))
""",
    "a class that derives from one": """
class Cache(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        if len(self) > 90:  # here
            self.popitem(last=False)  # here

cache = Cache()

def step(number):
    cache[number] = torch.zeros(5000)
""",
    "the length of the object": """
class Buffer:
    def __init__(self):
        self.items = []

    def __len__(self):
        return len(self.items)

    def add(self, item):
        if len(self) >= 90:  # here
            self.items.pop(0)  # here
        self.items.append(item)

buffer = Buffer()

def step(number):
    buffer.add(torch.zeros(5000))
""",
    "the last items": """
class Window:
    def __init__(self):
        self.last = []

    def add(self, item):
        self.last.append(item)
        self.last = self.last[-90:]  # here

window = Window()

def step(number):
    window.add(torch.zeros(5000))
""",
    "the first items are deleted": """
items = []

def step(number):
    items.append(torch.zeros(5000))
    del items[:-90]  # here
""",
    "a replay memory": """
class Replay:
    def __init__(self, capacity):
        self.capacity, self.position, self.memory = capacity, 0, []

    def push(self, *transition):
        if len(self.memory) < self.capacity:  # here
            self.memory.append(None)
        self.memory[self.position] = transition  # here
        self.position = (self.position + 1) % self.capacity

replay = Replay(90)

def step(number):
    replay.push(torch.zeros(5000), torch.ones(5000), number)
""",
    "a ring": """
ring = [None] * 90

def step(number):
    ring[number % 90] = torch.zeros(5000)  # here
""",
    "the best ones": """
best = []

def step(number):
    item = (random.random(), number, torch.zeros(5000))
    if len(best) < 90:  # here
        heapq.heappush(best, item)
    else:
        heapq.heappushpop(best, item)  # here
""",
    "a cache that is no longer filled": """
LIMIT = 90
cache = {}

def step(number):
    if len(cache) < LIMIT:  # here
        cache[number] = torch.zeros(5000)
""",
    "places that go around": """
class Ring:
    def __init__(self, size):
        self.size, self.at = size, 0
        self.data = [None] * size

    def put(self, item):
        self.data[self.at] = item  # here
        self.at = (self.at + 1) % self.size

ring = Ring(90)

def step(number):
    ring.put(torch.zeros(5000))
""",
    "a queue that is drained": """
todo = []

def work():
    while todo:
        todo.pop()  # here

def step(number):
    todo.append(torch.zeros(5000))
    if number % 90 == 89:
        work()
""",
    "an episode that is made anew": """
class Episode:
    def __init__(self):
        self.states = []

episode = Episode()

def step(number):
    global episode
    episode.states.append(torch.zeros(5000))
    if number % 90 == 89:
        episode = Episode()  # here
""",
    "the largest ones": """
best = []

def step(number):
    global best
    best.append((random.random(), number, torch.zeros(5000)))
    best = heapq.nlargest(90, best)  # here
""",
    "by their bytes": """
items, size = [], 0

def step(number):
    global size
    items.append(torch.zeros(5000))
    size += items[-1].nbytes
    while size > 90 * 20000:
        size -= items.pop(0).nbytes  # here
""",
    "by their age": """
cache = {}

def step(number):
    cache[number] = torch.zeros(5000)
    for key in [key for key in cache if key < number - 90]:
        del cache[key]  # here
""",
    "by a function": """
def trim(items, limit):
    while len(items) > limit:
        items.pop(0)

history = []

def step(number):
    history.append(torch.zeros(5000))
    trim(history, 90)  # here
""",
    "the outputs of an epoch": """
class Model:
    def __init__(self):
        self.outputs = []

    def training_step(self, number):
        self.outputs.append(torch.zeros(5000))

    def on_epoch_end(self):
        self.outputs.clear()  # here

model = Model()

def step(number):
    model.training_step(number)
    if number % 90 == 89:
        model.on_epoch_end()
""",
    "a list that begins anew in each epoch": """
def run(sample):
    for epoch in range(1):
        outputs = []  # here
        for number in range(24):
            outputs.append(torch.zeros(5000))
            sample()
""",
    "a function for each epoch": """
def epoch(sample):
    losses = []  # here
    for number in range(24):
        losses.append(torch.zeros(5000))
        sample()
    return sum(losses)

def run(sample):
    for number in range(1):
        epoch(sample)
""",
    "a list behind a key": """
logs = {}

def step(number):
    logs.setdefault("loss", []).append(torch.zeros(5000))
    if number % 90 == 89:
        logs["loss"] = []  # here
""",
    "keys and values of a window": """
past = None

def step(number):
    global past
    now = torch.zeros(1, 5000)
    past = now if past is None else torch.cat([past, now])
    if past.shape[0] > 90:
        past = past[-90:]  # here
""",
    "keys and values of a sequence": """
past = None

def step(number):
    global past
    if number % 90 == 0:
        past = None  # here
    now = torch.zeros(1, 5000)
    past = now if past is None else torch.cat([past, now])
""",
}

LEAKS = {
    "nothing empties it": """
items = []

def step(number):
    items.append(torch.zeros(5000))
""",
    "what empties it is never called": """
class Model:
    def __init__(self):
        self.outputs = []

    def training_step(self):
        self.outputs.append(torch.zeros(5000))

    def on_epoch_end(self):
        self.outputs.clear()

model = Model()

def step(number):
    model.training_step()
""",
    "another list is limited": """
class Model:
    def __init__(self):
        self.outputs, self.numbers = [], []

    def step(self, number):
        self.outputs.append(torch.zeros(5000))
        self.numbers.append(number)
        if len(self.numbers) > 20:
            self.numbers.pop(0)

model = Model()

def step(number):
    model.step(number)
""",
    "a mean of the last": """
class Meter:
    def __init__(self):
        self.losses = []

    def add(self, loss):
        self.losses.append(loss)
        if len(self.losses) > 4:
            return sum(self.losses[-4:])
        return loss

meter = Meter()

def step(number):
    meter.add(torch.zeros(5000))
""",
    "it is added to above its limit too": """
memory = []

def step(number):
    if len(memory) < 90:
        memory.append(torch.zeros(5000))
        return
    memory.append(torch.zeros(5000))
""",
    "once, at a step": """
kept = []

def step(number):
    kept.append(torch.zeros(5000))
    if number == 5_000:
        kept.clear()
""",
    "a length that is asked for something else": """
memory = []

def batch():
    if len(memory) < 32:
        return None
    return random.sample(memory, 32)

def step(number):
    memory.append(torch.zeros(5000))
    batch()
""",
    "what is done is taken out": """
pending = {}

def finish(number):
    pending.pop(number, None)

def step(number):
    pending[number] = torch.zeros(5000)
    pending[-number] = torch.zeros(5000)
    finish(number)
""",
    "it is emptied before it is filled": """
class Trainer:
    def step(self):
        self.losses.append(torch.zeros(5000))

    def fit(self, sample):
        self.losses = []
        for number in range(24):
            self.step()
            sample()

def run(sample):
    Trainer().fit(sample)
""",
    "it is emptied by the class itself": """
class Trainer:
    def __init__(self):
        self.reset()

    def reset(self):
        self.losses = []

    def step(self):
        self.losses.append(torch.zeros(5000))

trainer = Trainer()

def step(number):
    trainer.step()
""",
    "a stack": """
stack = []

def pop():
    if len(stack) > 0:
        return stack.pop()

def step(number):
    stack.append(torch.zeros(5000))
    stack.append(torch.zeros(5000))
    pop()
""",
    "beyond its limit": """
cache = {}

def step(number):
    cache[number] = torch.zeros(5000)
    if len(cache) > 8:
        cache.get(0)
        cache.pop(None, None)
""",
}


def _write(folder: Path, programs: dict[str, str]) -> list[str]:
    names = []
    for number, text in enumerate(programs.values()):
        # A name that no other begins with.
        names.append(f"program_{number}_")
        (folder / f"{names[-1]}.py").write_text(IMPORTS + text)
    return names


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is told of each program; all of them run in one process."""
    folder = tmp_path_factory.mktemp("limits")
    programs = FILLING | LEAKS
    names = _write(folder, programs)
    (folder / "run.py").write_text(RUN)
    found = json.loads(python("run.py", *names, cwd=folder).stdout)
    return {title: found[name] for title, name in zip(programs, names, strict=True)}


@pytest.mark.parametrize("title", FILLING)
def test_what_may_be_filling_is_not_told_and_its_limit_is_named(
    title: str, told: dict[str, Any]
) -> None:
    lines = (IMPORTS + FILLING[title]).splitlines()
    wanted = [number for number, line in enumerate(lines, 1) if line.endswith("# here")]
    assert told[title]["owners"] == []
    assert told[title]["limited"] == [wanted]
    assert "may be limited by" in told[title]["headline"]


@pytest.mark.parametrize("title", LEAKS)
def test_what_nothing_limits_is_told(title: str, told: dict[str, Any]) -> None:
    assert len(told[title]["owners"]) == 1
    assert told[title]["limited"] == []
