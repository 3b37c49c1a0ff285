"""Programs in which something grows beside what looks like a limit and is none."""

from __future__ import annotations

from support.metrics import metric

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
    "a limit that is not set": """
class Cache:
    def __init__(self, size=None):
        self.data, self.size = {}, size

    def put(self, key, value):
        self.data[key] = value
        if self.size is not None and len(self.data) > self.size:
            self.data.pop(next(iter(self.data)))

cache = Cache()

def step(number):
    cache.put(number, torch.zeros(5000))
""",
    "only while something is searched for": """
class Log:
    def __init__(self, debug=False):
        self.rows, self.debug = [], debug

    def add(self, row):
        self.rows.append(row)
        if self.debug and len(self.rows) > 90:
            self.rows.clear()

log = Log()

def step(number):
    log.add(torch.zeros(5000))
""",
    "none of the last": """
class Checkpoints:
    def __init__(self, keep=0):
        self.saved, self.keep = [], keep

    def save(self, state):
        self.saved.append(state)
        del self.saved[:-self.keep]

checkpoints = Checkpoints()

def step(number):
    checkpoints.save(torch.zeros(5000))
""",
    "a method that is replaced": """
class Buffer:
    def __init__(self, size):
        self.data, self.size = [], size

    def put(self, item):
        self.data.append(item)
        if len(self.data) > self.size:
            self.data.pop(0)

class Prioritized(Buffer):
    def put(self, item):
        self.data.append((1.0, item))

buffer = Prioritized(90)

def step(number):
    buffer.put(torch.zeros(5000))
""",
    "another object is emptied": """
class Meter:
    def __init__(self):
        self.values = []

    def update(self, value):
        self.values.append(value)

    def reset(self):
        self.values.clear()

of_training, of_validation = Meter(), Meter()

def step(number):
    if number % 4 == 0:
        of_training.reset()
    of_training.update(1.0)
    of_validation.update(torch.zeros(5000))
""",
    "a part of the key goes around": """
kept = {}

def step(number):
    kept[f"{number % 4} of {number}"] = torch.zeros(5000)
""",
    "a list is made where there is none": """
class Tracker:
    def __init__(self):
        self.tracks = {}

    def update(self, number, item):
        if number not in self.tracks:
            self.tracks[number] = []
        self.tracks[number].append(item)

tracker = Tracker()

def step(number):
    tracker.update(number // 4, torch.zeros(5000))
""",
    "a dictionary is made where there is none": """
class Pool:
    def __init__(self):
        self.rooms = {}

    def room(self, name):
        try:
            return self.rooms[name]
        except KeyError:
            self.rooms[name] = {}
        return self.rooms[name]

pool = Pool()

def step(number):
    pool.room(f"room {number}")["kept"] = torch.zeros(5000)
""",
    "each epoch has a list of its own": """
results = {}

def run(sample):
    for epoch in range(8):
        results[epoch] = []
        for _ in range(3):
            results[epoch].append(torch.zeros(5000))
            sample()
""",
    "each step has a dictionary of its own": """
class Checkpoints:
    def __init__(self):
        self.saved, self.best = {}, None

    def save(self, number):
        self.saved[number] = {"weights": torch.zeros(5000), "number": number}
        if self.best is None or number > self.best:
            self.best = number

checkpoints = Checkpoints()

def step(number):
    checkpoints.save(number)
""",
    "each step has a list of its own, by its name": """
class Outputs:
    def __init__(self):
        self.by_name = {}

    def add(self, number):
        self.by_name[f"step {number}"] = [torch.zeros(5000)]

outputs = Outputs()

def step(number):
    outputs.add(number)
""",
    "what counts is made anew once": """
class Meter:
    def __init__(self):
        self.values = []

class Trainer:
    def __init__(self):
        self.meter = None

    def prepare(self):
        self.meter = Meter()

trainer = Trainer()
trainer.prepare()

def step(number):
    trainer.meter.values.append(torch.zeros(5000))
""",
    "a list is made behind an else": """
tracks = {}

def step(number):
    if number // 3 in tracks.keys():
        tracks[number // 3].append(torch.zeros(5000))
    else:
        tracks[number // 3] = []
        tracks[number // 3].append(torch.zeros(5000))
""",
    "an entry is marked as done": """
requests = {}

def step(number):
    requests[number] = {"hidden": torch.zeros(5000), "done": False}
    if number > 0:
        requests[number - 1]["done"] = True
""",
    "a trainer is set up as the program begins": """
class Buffer:
    def __init__(self):
        self.seen = []

class Trainer:
    def __init__(self):
        self.buffer = None

    def setup(self):
        self.buffer = Buffer()

def main():
    if torch.get_num_threads() > 0:
        trainer.setup()

trainer = Trainer()
main()

def step(number):
    trainer.buffer.seen.append(torch.zeros(5000))
""",
    "each episode has a list": """
class Runner:
    def __init__(self):
        self.episodes = {0: []}
        self.count = 0

    def see(self, item, done):
        self.episodes[self.count].append(item)
        if done:
            self.count += 1
            self.episodes[self.count] = []

runner = Runner()

def step(number):
    runner.see(torch.zeros(5000), number % 5 == 4)
""",
    "each run has a list by its name": """
log, runs = {}, 0

def step(number):
    global runs
    if number % 5 == 0:
        runs += 1
        log[f"run{runs}"] = []
    log[f"run{runs}"].append(torch.zeros(5000))
""",
    "a cache by the rounded number of a step that is counted": """
class Masks:
    def __init__(self):
        self.masks, self.count = {}, 0

    def see(self):
        self.count += 1
        if self.count // 1 not in self.masks:
            self.masks[self.count // 1] = torch.zeros(5000)

masks = Masks()

def step(number):
    masks.see()
""",
    "a cache by the rounded index of a loop": """
cache = {}

def run(sample):
    for number in range(24):
        cache[number // 1] = torch.zeros(5000)
        sample()
""",
    "lists by a rounded length": """
class Groups:
    def __init__(self):
        self.groups = {}

    def see(self, length, item):
        size = length // 100
        if size not in self.groups:
            self.groups[size] = []
        self.groups[size].append(item)

groups = Groups()

def step(number):
    groups.see(number, torch.zeros(5000))
""",
    "a cache by a name with a number": """
cache = {}

def put(token):
    key = "step %d" % token
    if key not in cache:
        cache[key] = torch.zeros(5000)

def step(number):
    put(number)
""",
    "a cache by what is asked for": """
cache = {}

def find(length):
    if length not in cache:
        cache[length] = torch.zeros(5000)
    return cache[length]

def step(number):
    find(8 * number + 3)
""",
    "another attribute is set by its name": metric('setattr(self, "seen", 0)'),
    "other attributes are set in a loop": metric('for name in ("seen",): setattr(self, name, 0)'),
    "another attribute is updated": metric("self.__dict__.update(seen=0)"),
    "all attributes are set as it begins": metric(
        "pass",
        begins="""        self.begin()

    def begin(self):
        for name in list(vars(self)):
            setattr(self, name, [])
""",
    ),
    "a cache by a text that is formatted": """
NAME = "step %d"
cache = {}

def put(token):
    cache[NAME % token] = torch.zeros(5000)

def step(number):
    put(number)
""",
    "a cache by a sum with a remainder": """
cache = {}

def put(token):
    cache[token + token % 7] = torch.zeros(5000)

def step(number):
    put(8 * number)
""",
    "a cache by a number that is only sometimes rounded": """
cache = {}

def key(token):
    if token < 0:
        return token // 8
    return token

def step(number):
    cache[key(number)] = torch.zeros(5000)
""",
    "a cache by a rounded number that goes on": """
cache, at = {}, 0

def put():
    global at
    at = at + 8
    cache[at // 8] = torch.zeros(5000)

def step(number):
    put()
""",
    "a list is added behind all others": """
lists = {}

def step(number):
    if number % 5 == 0:
        lists[len(lists)] = []
    lists[len(lists) - 1].append(torch.zeros(5000))
""",
    "a root that moves on": """
class Node:
    def __init__(self, parent=None):
        self.parent, self.children, self.state = parent, [], torch.zeros(5000)

class Search:
    def __init__(self):
        self.root = Node()

    def move(self):
        self.root.children.append(Node(self.root))
        self.root = self.root.children[0]

search = Search()

def step(number):
    search.move()
""",
}
