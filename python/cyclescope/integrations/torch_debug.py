"""The memory of every rank, in PyTorch's debug server (``torch.distributed.debug``).

All ranks import this module and start the server with its handler::

    from torch.distributed.debug import start_debug_server
    from torch.distributed.debug._debug_handlers import default_handlers

    from cyclescope.integrations.torch_debug import MemoryHandler

    start_debug_server(handlers=[*default_handlers(), MemoryHandler()])

Each rank answers on a thread of PyTorch, even while its main thread waits in a collective. PyTorch
calls this server experimental; it needs PyTorch 2.11 or later.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cyclescope import _native, _ranks
from cyclescope._live.growth import running_report
from cyclescope._live.redaction import shown_error
from cyclescope._off import OFF
from cyclescope._settings import settings

try:
    from torch._C._distributed_c10d import _register_handler
    from torch.distributed.debug._frontend import DebugHandler, NavLink, Route, fetch_all
except ImportError as error:
    raise ImportError(
        "cyclescope.integrations.torch_debug needs the debug server of PyTorch 2.11 or later, and "
        f"what that needs (pip install jinja2 aiohttp tabulate): {error}"
    ) from error

if TYPE_CHECKING:
    Handler = Any
else:
    Handler = DebugHandler

ENDPOINT = "cyclescope"
"""What the server asks the ranks for."""

MIB = 2**20


class MemoryHandler(Handler):  # type: ignore[misc]
    """Two pages, linked from all others, and a dump: what holds memory on every rank.

    *Memory* lists live memory and reference cycles of all ranks, with the owners on each. *Leaks*
    is one report of the reference cycles of all ranks, as ``cyclescope merge`` makes it. To write
    the first as text into the server's ``dump_dir``, put ``"cyclescope"`` into its
    ``enabled_dumps``.

    An answer pauses the rank for about as long as two full collections take. Nothing is collected,
    and no code of the program runs. ``CYCLESCOPE_DEVICES`` selects the memory to check for cycles,
    by default ``any``.
    """

    def routes(self) -> list[Any]:
        """The two pages."""
        return [Route("/cyclescope", self._memory), Route("/cyclescope_leaks", self._leaks)]

    def nav_links(self) -> list[Any]:
        """How other pages link to them."""
        return [NavLink("/cyclescope", "Memory"), NavLink("/cyclescope_leaks", "Leaks")]

    def templates(self) -> dict[str, str]:
        """The template of the page of memory."""
        return {"cyclescope.html": TEMPLATE}

    def dump(self) -> str:
        """What each rank holds, as text."""
        return "\n\n".join(
            f"=== Rank {number} ===\n{summary(answer)}\n\n{answer['text']}"
            for number, answer in enumerate(self._answers())
        )

    def dump_filename(self) -> str:
        """How ``enabled_dumps`` names the dump, and its files begin."""
        return "cyclescope"

    def _memory(self, request: Any) -> bytes:
        ranks = [(summary(answer), answer["text"]) for answer in self._answers()]
        page: bytes = request.frontend.render_template("cyclescope.html", ranks=ranks)
        return page

    def _leaks(self, request: Any) -> bytes:
        texts = [answer["cycles"] for answer in self._answers() if answer["cycles"]]
        reports = [_native.CycleReport.from_json(text) for text in texts]
        merged = _native.merge_processes(reports) if reports else _native.empty_report()
        return merged.to_html().encode()

    def _answers(self) -> Iterable[dict[str, Any]]:
        return answers(getattr(self, "fetch_timeout", None))


def answers(timeout: float | None) -> Iterable[dict[str, Any]]:
    """What each rank says, by number. One that does not answer has a ``text`` that says so.

    Args:
        timeout: How many seconds to wait for each; None for PyTorch 2.11, which takes no limit.
    """
    given: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    _, responses = fetch_all(ENDPOINT, **given)
    for response in responses:
        if response.status_code == 200:
            yield json.loads(response.text)
        else:
            yield {"cycles": "", "text": f"No answer: {response.status_code} {response.text}"}


def summary(answer: dict[str, Any]) -> str:
    """A line about a rank."""
    if not answer["cycles"]:
        return "not available"
    leaks = "1 leak holds" if answer["leaks"] == 1 else f"{answer['leaks']} leaks hold"
    cycles = f"{leaks} {answer['in_cycles'] / MIB:,.1f} MiB in cycles"
    return (
        f"{answer['device_bytes'] / MIB:,.1f} MiB on devices, "
        f"{answer['host_bytes'] / MIB:,.1f} MiB in host memory; "
        + (cycles if answer["leaks"] else "no leaks")
        + f" ({answer['process']})"
    )


TEMPLATE = """
{% extends "base.html" %}
{% block header %}<h1>{% block title %}Memory of all ranks{% endblock %}</h1>{% endblock %}
{% block content %}
{% for line, text in ranks %}
<details><summary>Rank {{ loop.index0 }}: {{ line | e }}</summary>
<pre>{{ text | e }}</pre></details>
{% endfor %}
{% endblock %}
"""


# What runs in each rank


def look() -> dict[str, Any]:
    """What this process holds."""
    if OFF:
        return {"cycles": "", "text": "CYCLESCOPE_OFF is set: nothing was inspected"}
    # Cycles first: they are what a collection in the meantime would free.
    report = _native.look(settings().devices_or(None))
    heap = _native.heap()
    monitor = running_report()
    parts = [report.to_text(), heap.to_text(), "" if monitor is None else monitor.to_text()]
    return {
        "cycles": report.to_json(),
        "device_bytes": heap.device_bytes,
        "host_bytes": heap.host_bytes,
        "leaks": len(report.leaks),
        "in_cycles": sum(leak.bytes_held for leak in report.leaks),
        "process": _ranks.stem(),
        "text": "\n\n".join(part.rstrip() for part in parts if part),
    }


def _answer(_request: Any, response: Any) -> None:
    try:
        found = look()
    except BaseException as error:
        # It would end the process: PyTorch's thread expects no exception.
        found = {"cycles": "", "text": f"not available: {shown_error(error)}"}
    response.set_content(json.dumps(found), "application/json")
    response.set_status(200)


# PyTorch drops its reference when the process ends, without the interpreter's lock. That aborts the
# process if it is the last one.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_answer))
_register_handler(ENDPOINT, _answer)
