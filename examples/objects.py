"""A trainer that keeps every event: objects that are not tensors."""

import cyclescope


class Event:
    def __init__(self, step, name):
        self.step = step
        self.name = name
        self.values = list(range(step, step + 32))


class Trainer:
    def __init__(self):
        self.events = []

    def step(self, number):
        self.events += [Event(number, f"event {number}") for _ in range(64)]


def fit():
    trainer = Trainer()
    monitor = cyclescope.watch_growth(every=5, devices="any")
    for number in range(150):
        trainer.step(number)
        monitor.step()


fit()
