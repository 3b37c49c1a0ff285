"""A metric that collects what it is given, as text: programs that differ in how it begins anew."""

from __future__ import annotations

_METRIC = """
class Metric:
    def __init__(self):
        self.found = []
        self.seen = 0
{begins}
    def reset(self):
        {resets}

    def update(self, item):
        self.found.append(item)

metric = Metric()

def run(sample):
    for epoch in range(2):
        for number in range(24):
            metric.update(torch.zeros(5000))
            if epoch == 0:
                sample()
        metric.reset()
"""


def metric(resets: str, begins: str = "") -> str:
    """The program, by what ``reset()`` does, and what else is in the class."""
    return _METRIC.format(resets=resets, begins=begins)
