"""As ``support.limits``: programs whose limit stands elsewhere, or is written in another way."""

from __future__ import annotations

from support.metrics import metric

ELSEWHERE = {
    "a counter begins anew": """
class Slots:
    def __init__(self):
        self.at = 0
        self.by_number = {}

    def begin(self):
        self.at = 0

    def see(self, item):
        if self.at % 5 == 0:
            self.by_number[self.at // 5] = []  # here
        self.by_number[self.at // 5].append(item)
        self.at += 1

slots = Slots()

def step(number):
    if number % 90 == 0:
        slots.begin()
    slots.see(torch.zeros(5000))
""",
    "a counter of a function that is called again": """
log = {}

def epoch(sample, count):
    at = 0
    for number in range(count):
        if number % 5 == 0:
            at += 1
            log[at] = []  # here
        log[at].append(torch.zeros(5000))
        sample()

def run(sample):
    for count in (1, 24):
        epoch(sample, count)
""",
    "the variable of a decorator": """
def cached(limit):
    def wrap(function):
        memo = {}

        def inner(number):
            if len(memo) >= limit:  # here
                memo.pop(next(iter(memo)))  # here
            memo[number] = function(number)
            return memo[number]

        return inner

    return wrap

@cached(200)
def step(number):
    return torch.zeros(5000)
""",
    "a callback takes it out": """
class Task:
    def __init__(self):
        self.data, self.callbacks = torch.zeros(5000), []

    def add_done_callback(self, function):
        self.callbacks.append(function)

pending = set()

def step(number):
    task = Task()
    pending.add(task)
    task.add_done_callback(pending.discard)  # here
""",
    "a part of it in a new list": """
class History:
    def __init__(self):
        self.items = []

    def see(self, item):
        self.items = [*self.items[-199:], item]  # here

history = History()

def step(number):
    history.see(torch.zeros(5000))
""",
    "a function returns a part": """
def last(items, count):
    return items[-count:]

class History:
    def __init__(self):
        self.items = []

    def see(self, item):
        self.items = last(self.items + [item], 200)  # here

history = History()

def step(number):
    history.see(torch.zeros(5000))
""",
    "a cache by a bucket that a function finds": """
class Masks:
    def __init__(self):
        self.masks = {}

    def of(self, length):
        size = bucket(length)
        if size not in self.masks:
            self.masks[size] = torch.zeros(5000)  # here
        return self.masks[size]

STEP = 8

def bucket(length):
    return (length + STEP - 1) // STEP * STEP

masks = Masks()

def step(number):
    masks.of(8 * number + 3)
""",
    "a cache by a pair of rounded sizes": """
grids = {}

def grid(height, width):
    key = (round(height / 8), f"{width // 8}")
    found = grids.get(key)
    if found is None:
        found = grids[key] = torch.zeros(5000)  # here
    return found

def step(number):
    grid(8 * number, 3)
""",
    "a table by what is left of a division": """
table = {}

def put(token):
    table[token % 500] = torch.zeros(5000)  # here

def step(number):
    put(number)
""",
    "all attributes are set by their names": metric(
        "for name in list(vars(self)): setattr(self, name, [])  # here"
    ),
    "it is initialized again": metric("self.__init__()  # here"),
    "its dictionary is updated": metric("self.__dict__.update(found=[], seen=0)  # here"),
    "the buffer of a generator that shuffles": """
def shuffled(items, size):
    buffer = []  # here
    for item in items:
        buffer.append(item)
        if len(buffer) < size:  # here
            yield item
            continue
        yield buffer.pop(0)

def run(sample):
    for _ in shuffled((torch.zeros(5000) for _ in range(24)), 200):
        sample()
""",
    "a method is given it": """
class History:
    def __init__(self):
        self.items = []

    def see(self, item):
        self.items.append(item)
        self._limit(self.items)  # here

    def _limit(self, items):
        while len(items) > 200:
            items.pop(0)

history = History()

def step(number):
    history.see(torch.zeros(5000))
""",
    "a function of another module is given it": """
from helper_of_programs import trim

class History:
    def __init__(self):
        self.items = []

    def see(self, item):
        self.items.append(item)
        trim(self.items, 200)  # here

history = History()

def step(number):
    history.see(torch.zeros(5000))
""",
}
HELPER = """
def trim(items, count):
    if len(items) > count:
        del items[:-count]
"""
"""The module ``helper_of_programs``."""
