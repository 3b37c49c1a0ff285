"""Programs in which something grows within a limit that their source shows."""

from __future__ import annotations

# The lines by which they are limited, or emptied, end with `# here`.
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
    "the best ones, one too many for a moment": """
best = []

def step(number):
    heapq.heappush(best, (random.random(), number, torch.zeros(5000)))
    if len(best) > 90:  # here
        heapq.heappop(best)  # here
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
    "what is missing is put in": """
cache = {}

def get(key):
    if key not in cache:
        if len(cache) >= 90:  # here
            cache.pop(next(iter(cache)))  # here
        cache[key] = torch.zeros(5000)
    return cache[key]

def step(number):
    get(number)
""",
    "by another name": """
class Window:
    def __init__(self, size):
        self.items, self.size = [], {"n": size}

    def add(self, item):
        items = self.items
        items.append(item)
        while len(items) > self.size["n"]:  # here
            items.pop(0)  # here

window = Window(90)

def step(number):
    window.add(torch.zeros(5000))
""",
    "all of its items are replaced": """
class Window:
    def __init__(self):
        self.items = []

    def add(self, item):
        self.items.append(item)
        self.items[:] = self.items[-90:]  # here

window = Window()

def step(number):
    window.add(torch.zeros(5000))
""",
    "two functions": """
class Buffer:
    def __init__(self, options):
        self.items, self.options = [], options

    def is_full(self):
        return len(self.items) >= self.options["size"]

    def evict(self):
        self.items.pop(0)  # here

    def add(self, item):
        if self.is_full():
            self.evict()
        self.items.append(item)

buffer = Buffer({"size": 90})

def step(number):
    buffer.add(torch.zeros(5000))
""",
    "a batch that is full": """
class Batches:
    def __init__(self, options):
        self.waiting, self.options = [], options

    def add(self, item):
        self.waiting.append(item)
        if len(self.waiting) >= self.options["size"]:
            self.flush()

    def flush(self):
        batch, self.waiting = self.waiting, []  # here
        torch.stack(batch)

batches = Batches({"size": 90})

def step(number):
    batches.add(torch.zeros(5000))
""",
    "what is behind a window": """
window = {}

def step(number):
    window[number] = torch.zeros(5000)
    window.pop(number - 90, None)  # here
""",
    "keys that are old": """
window = {}

def step(number):
    window[number] = torch.zeros(5000)
    old = [key for key in window if key < number - 90]
    for key in old:
        del window[key]  # here
""",
    "what is done is taken out later": """
class Requests:
    def __init__(self):
        self.running = {}

    def submit(self, number, request):
        self.running[number] = request

    def complete(self, number):
        return self.running.pop(number)  # here

requests = Requests()

def step(number):
    requests.submit(number, torch.zeros(5000))
    if number >= 90:
        requests.complete(number - 90)
""",
    "a length that has a name": """
items = []

def step(number):
    count = len(items)
    if count >= 90:  # here
        return
    items.append(torch.zeros(5000))
""",
    "as many as there are too many": """
items, options = [], {"size": 90}

def step(number):
    items.append(torch.zeros(5000))
    for _ in range(len(items) - options["size"]):
        items.pop(0)  # here
""",
    "lists in a loop": """
class Evaluation:
    def __init__(self):
        self.losses, self.outputs = [], []

    def end(self):
        for each in (self.losses, self.outputs):
            each.clear()  # here

evaluation = Evaluation()

def step(number):
    evaluation.outputs.append(torch.zeros(5000))
    if number % 90 == 89:
        evaluation.end()
""",
    "the values of a dictionary": """
logs = {"loss": [], "accuracy": []}

def step(number):
    logs["loss"].append(torch.zeros(5000))
    if number % 90 == 89:
        for values in logs.values():
            values.clear()  # here
""",
    "a property": """
class Evaluation:
    def __init__(self):
        self._outputs = []

    @property
    def outputs(self):
        return self._outputs

    def end(self):
        self.outputs.clear()  # here

evaluation = Evaluation()

def step(number):
    evaluation.outputs.append(torch.zeros(5000))
    if number % 90 == 89:
        evaluation.end()
""",
    "a cache of a data set": """
class Data:
    def __init__(self):
        self.cache = {}

    def __len__(self):
        return 90

    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = torch.zeros(5000)  # here
        return self.cache[index]

data = Data()

def step(number):
    data[number % len(data)]
""",
    "as many as there may be": """
class Cache:
    def __init__(self):
        self.data = {}

    def put(self, key, value):
        if len(self.data) == 90:  # here
            oldest = next(iter(self.data))
            del self.data[oldest]
        self.data[key] = value

cache = Cache()

def step(number):
    cache.put(number, torch.zeros(5000))
""",
    "an object that is made anew by a function that is called now and then": """
class Buffer:
    def __init__(self):
        self.seen = []

    def add(self, item):
        self.seen.append(item)

class Agent:
    def __init__(self):
        self.buffer = Buffer()

    def act(self, number):
        self.buffer.add(torch.zeros(5000))
        if number % 90 == 89:
            self.learn()

    def learn(self):
        torch.stack(self.buffer.seen).mean()
        self.buffer = Buffer()  # here

agent = Agent()

def step(number):
    agent.act(number)
""",
    "an episode that begins with what is seen first": """
class Memory:
    def __init__(self):
        self.episodes = {}

    def see(self, name, item, done):
        if done:
            self.episodes[name] = [item]  # here
        else:
            self.episodes[name].append(item)

memory = Memory()
memory.episodes["cart"] = []

def step(number):
    memory.see("cart", torch.zeros(5000), number % 90 == 89)
""",
    "what has ended is taken out": """
class Caches:
    def __init__(self):
        self.by_request, self.open = {}, []

    def see(self, request, item, done):
        self.by_request[request] = item
        self.open.append(request)
        if done:
            for each in self.open:
                del self.by_request[each]  # here
            self.open.clear()

caches = Caches()

def step(number):
    caches.see(number, torch.zeros(5000), number % 90 == 89)
""",
    "all keys are taken out": """
class Features:
    def __init__(self):
        self.by_layer = {}

    def see(self, layer, item):
        self.by_layer[layer] = item

    def forget(self):
        for layer in list(self.by_layer):
            del self.by_layer[layer]  # here

features = Features()

def step(number):
    features.see(number, torch.zeros(5000))
    if number % 90 == 89:
        features.forget()
""",
}
