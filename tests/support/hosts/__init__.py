"""Host programs that must not notice cyclescope: each is run bare and watched, and compared.

``python -m support.hosts NAME`` runs one, with ``tests`` in ``PYTHONPATH``.
"""

from __future__ import annotations

# Each registers its programs.
from . import callbacks as callbacks
from . import ends as ends
from . import garbage as garbage
from .parts import PROGRAMS as PROGRAMS

ONCE = {
    "callbacks_cleared_at_stop_by_a_newcomer",
    "fork",
    "fork_in_thread",
    "fork_in_finalizer",
    "garbage_left_at_exit",
}
"""Programs that count the collections or reports, and so are not run with ``--young``."""
