"""The pages of a folder over HTTP, to this machine only.

The server is the standard library's. It listens on the loopback address, answers GET and HEAD
below an address that nobody can guess, for its own host name only, and serves the files that it
lists and no others. The pages of the folder are framed in a sandbox: whatever a file contains, it
reaches neither the list nor the network.
"""

from __future__ import annotations

import html
import json
import os
import re
import secrets
import stat
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from cyclescope import _native
from cyclescope._server_page import PAGE_POLICY, message, page, policy, script

LOOPBACK = "127.0.0.1"
LISTED = 500
"""The maximum number of files in the list, the newest."""
MAX_BYTES = 64 << 20
"""Larger files are not served."""

TITLE = re.compile("<title>(.*?)(?: · cyclescope)?</title>", re.DOTALL)
TITLE_WITHIN = 64 << 10
"""So many bytes of a page are searched for its title."""
TITLE_MAX = 300
"""Longer titles are cut."""
KINDS: dict[str, Callable[[str], str]] = {
    "growth": lambda text: _native.GrowthReport.from_json(text).to_html(),
    "out-of-memory": lambda text: _native.PostMortem.from_json(text).to_html(),
    "device-memory": lambda text: _native.DeviceMemory.from_json(text).to_html(),
}
"""How the page of a report is made, by the kind that its JSON names."""
WITHOUT_KIND: list[Callable[[str], str]] = [
    lambda text: _native.CycleReport.from_json(text).to_html(),
    lambda text: _native.Heap.from_json(text).to_html(),
    lambda text: _native.Retention.from_json(text).to_html(),
    lambda text: _native.HeapDiff.from_json(text).to_html(),
]

SCRIPT = script(LISTED)
INDEX_POLICY = policy(SCRIPT)


class Listed(NamedTuple):
    """A file of the folder."""

    name: str
    time: float
    title: str
    path: str
    """The name as it is in addresses: it may be no UTF-8."""


class Titles:
    """The titles of files, each read once as long as the file stays the same."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], str | None] = {}

    def of(self, file: Path, status: os.stat_result) -> str | None:
        """The title of a page or report; "" for a page without, None for what is neither."""
        key = (file.name, status.st_mtime_ns, status.st_size)
        if key not in self._known:
            self._known[key] = _title(file)
        return self._known[key]

    def forget_all_but(self, names: set[str]) -> None:
        """Forget files that have gone, and what they were before."""
        for key in [key for key in self._known if key[0] not in names]:
            del self._known[key]


def _title(file: Path) -> str | None:
    try:
        if file.suffix == ".html":
            with file.open("rb") as opened:
                page = opened.read(TITLE_WITHIN)
        else:
            found = rendered(file)
            if found is None:
                return None
            page = found[:TITLE_WITHIN]
    except OSError:
        return None
    title = TITLE.search(page.decode("utf-8", "replace"))
    return " ".join(html.unescape(title[1]).split())[:TITLE_MAX] if title else ""


def listed(folder: Path, titles: Titles | None = None) -> list[Listed]:
    """The pages of a folder, and the reports that have no page, the newest first.

    Symbolic links are left out: they may lead anywhere. So is JSON that is not a report.
    """
    titles = titles or Titles()
    found = {}
    try:
        files = list(folder.iterdir())
    except OSError:
        return []
    for file in files:
        if file.suffix not in (".html", ".json"):
            continue
        try:
            status = file.lstat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_BYTES:
            found[file] = status
    titles.forget_all_but({file.name for file in found})
    pages = {file.stem for file in found if file.suffix == ".html"}
    newest = sorted(found, key=lambda file: (-found[file].st_mtime, file.name))
    shown: list[Listed] = []
    for file in newest:
        if len(shown) == LISTED:
            break
        if file.suffix == ".json" and file.stem in pages:
            continue
        title = titles.of(file, found[file])
        if title is not None:
            name = os.fsencode(file.name)
            readable = name.decode("utf-8", "replace")
            shown.append(Listed(readable, found[file].st_mtime, title, quote(name, safe="")))
    return shown


def rendered(file: Path) -> bytes | None:
    """A page, or the page of a report as JSON; None for what is neither."""
    content = file.read_bytes()
    if file.suffix == ".html":
        return content
    try:
        text = content.decode()
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    kind = read.get("kind") if isinstance(read, dict) else None
    for render in [KINDS[kind]] if isinstance(kind, str) and kind in KINDS else WITHOUT_KIND:
        try:
            return render(text).encode()
        except ValueError:
            continue
    return None


class Server(ThreadingHTTPServer):
    """Serves the pages of a folder to this machine."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.titles = Titles()
        self._listing = threading.Lock()
        self.token = secrets.token_urlsafe(24)
        super().__init__((LOOPBACK, port), _Handler)

    def listed(self) -> list[Listed]:
        """What is in the folder now."""
        with self._listing:
            return listed(self.folder, self.titles)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle of an answer is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def address(self) -> str:
        """The address of the list; who does not know it gets nothing."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "cyclescope"
    sys_version = ""
    # A connection that says nothing for so long is closed.
    timeout = 30

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = self._path()
        if path is None:
            self._send(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain", "default-src 'none'")
        elif path == "":
            shown = page(self.server.folder, SCRIPT)
            self._send(HTTPStatus.OK, shown.encode("utf-8", "replace"), "text/html", INDEX_POLICY)
        elif path == "list":
            files = [each._asdict() for each in self.server.listed()]
            content = json.dumps(files).encode()
            self._send(HTTPStatus.OK, content, "application/json", "default-src 'none'")
        else:
            self._page(path.removeprefix("page/"))

    def _path(self) -> str | None:
        """What is asked for below the token, by who knows it and this server's name."""
        hosts = {f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")}
        # Another name for the loopback address is that of a page that rebinds its own.
        if self.headers.get("Host") not in hosts:
            return None
        token, _, path = self.path.partition("?")[0].lstrip("/").partition("/")
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            return None
        return path if path in ("", "list") or path.startswith("page/") else None

    def _page(self, path: str) -> None:
        content = None
        name = unquote_to_bytes(path)
        if quote(name, safe="") in {each.path for each in self.server.listed()}:
            try:
                content = rendered(self.server.folder / os.fsdecode(name))
            except OSError:
                content = None
        if content is None:
            gone = message("This report is no longer in the folder")
            self._send(HTTPStatus.NOT_FOUND, gone, "text/html", PAGE_POLICY)
        else:
            self._send(HTTPStatus.OK, content, "text/html", PAGE_POLICY)

    def _send(self, status: HTTPStatus, content: bytes, kind: str, policy: str) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        for header, value in headers.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the path has the token."""
