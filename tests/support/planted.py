"""Programs in whose data a secret is planted wherever a report could find it."""

from __future__ import annotations

import os
from pathlib import Path

from support.processes import python

SECRET = "hunter2-Zq7"

PROGRAM = '''
import collections, functools, gc, json, logging, os, sys, threading
import numpy
import cyclescope

gc.disable()
SECRET = sys.argv[1]


class Node:
    """Its attributes are named in code, their values are not."""

    def __init__(self):
        self.array = numpy.zeros(2**17)
        self.me = self


def in_values():
    node = Node()
    node.text = SECRET
    node.raw = SECRET.encode()
    node.parts = [SECRET, (SECRET,), {SECRET}]
    node.more = {"key": SECRET}


def in_keys():
    node = Node()
    del node.me
    node.table = {SECRET: {(SECRET, 1): {SECRET.encode(): node}}}


def in_key_of_subclass():
    class Name(str):
        pass

    node = Node()
    node.table = collections.OrderedDict({Name(SECRET): [node]})
    node.other = collections.defaultdict(list, {SECRET: [node]})


def in_attribute_names():
    node = Node()
    del node.me
    setattr(node, "for " + SECRET, node)


def in_class_names():
    kind = type("Of " + SECRET, (Node,), {"__module__": "module " + SECRET})
    kind()


def in_exception():
    try:
        raise ValueError(SECRET, {SECRET: SECRET})
    except ValueError as error:
        kept = error
        array = numpy.zeros(2**17)
        secret = SECRET


def in_closure():
    node = Node()
    secret = SECRET
    node.callback = lambda: (node, secret)
    node.bound = functools.partial(node.callback, SECRET, **{"name " + SECRET: node})


def in_generator():
    def generate():
        array, secret, me = numpy.zeros(2**17), SECRET, holder
        yield secret

    holder = []
    holder.append(generate())
    next(holder[0])


def in_namespace():
    space = {"numpy": numpy, SECRET: 1, "secret": SECRET}
    code = "array = numpy.zeros(2**17)\\ndef f(): pass"
    exec(compile(code, "/home/" + SECRET + "/made.py", "exec"), space)


def in_thread():
    def target():
        array, secret, frame = numpy.zeros(2**17), SECRET, sys._getframe()

    thread = threading.Thread(target=target, name=SECRET)
    thread.start()
    thread.join()


LEAKS = [in_values, in_keys, in_key_of_subclass, in_attribute_names, in_class_names, in_exception,
         in_closure, in_generator, in_namespace, in_thread]
'''

WRITE = """
written = {}


def write(name, report):
    written[name] = "\\n".join(
        [str(report), repr(report), report.to_text(True), report.to_html(), report.to_json(),
         report.to_dot(), report.to_svg(), report.to_markdown(), report._repr_html_(),
         json.dumps(cyclescope.to_sarif(report)), *cyclescope.to_github_annotations(report)]
        + [text for leak in report.leaks for text in (
            str(leak), repr(leak), leak.summary, leak.advice, str(leak.before), str(leak.after),
            leak.to_svg(), leak.to_markdown(),
            repr(leak.cycle), repr(leak.cuts), repr(leak.buffers))]
    )


"""


def run(
    source: str, folder: Path, secret: str, home_name: str = "home of {}", **environment: str
) -> str:
    """What a program printed, from a folder that is secret as well."""
    home = folder / home_name.format(secret)
    home.mkdir()
    (home / "train.py").write_text(PROGRAM + WRITE + source, encoding="utf-8")
    done = python(
        str(home / "train.py"),
        secret,
        cwd=folder,
        env={**os.environ, "SOME_TOKEN": secret, "USER": secret, **environment},
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
