"""Functions of the system, bound once, when cyclescope is imported.

Tests of the program put others in their place (``mock.patch("os.getcwd")``), count the calls and
have them answer what they like. cyclescope calls none of those: its modules, most of which are
imported later, take these functions from here.
"""

from __future__ import annotations

import _thread
import gc
import os
import sys
import time
from os.path import basename as basename
from os.path import isabs, normpath
from os.path import join as join

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import ItemsView

open_file = open

access = os.access
chmod = os.chmod
fsencode = os.fsencode
fspath = os.fspath
getcwd = os.getcwd
getpid = os.getpid
mkdir = os.mkdir
readlink = os.readlink
replace = os.replace
stat = os.stat
unlink = os.unlink
urandom = os.urandom

monotonic = time.monotonic
now = time.time
perf_counter = time.perf_counter
sleep = time.sleep
time_ns = time.time_ns

collect = gc.collect
disable_collection = gc.disable
enable_collection = gc.enable
generation_stats = gc.get_stats
is_collection_enabled = gc.isenabled
tracked_objects = gc.get_objects

get_ident = _thread.get_ident

is_finalizing = sys.is_finalizing

environment = os.environ.get
"""The value of an environment variable; None, or another default, if it is not set."""

_freeze_count = gc.get_freeze_count
_IMMORTAL = 2000 if sys.version_info[:2] == (3, 12) else 0
"""CPython 3.12 puts immortal objects, some hundreds, among the frozen ones (``update_refs`` in
Modules/gcmodule.c). Who calls ``gc.freeze()`` freezes many more."""

_variables = os.environ.items
_uname = getattr(os, "uname", None)


def freeze_count() -> int:
    """How many objects ``gc.freeze()`` has excluded from collections."""
    count = _freeze_count()
    return count if count > _IMMORTAL else 0


def environment_variables() -> ItemsView[str, str]:
    """All environment variables."""
    return _variables()


def host_name() -> str:
    """The name of this machine; empty if the system does not say."""
    name: str = environment("COMPUTERNAME", "") if _uname is None else _uname().nodename
    return name


def absolute(path: str | os.PathLike[str]) -> str:
    """As ``os.path.abspath``.

    Raises:
        FileNotFoundError: If the current folder has been removed, and the path begins there.
    """
    name = fspath(path)
    return normpath(name if isabs(name) else join(getcwd(), name))
