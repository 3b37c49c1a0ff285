"""The pages of a folder over HTTP, to this machine only.

The server is the standard library's. It listens on the loopback address, answers GET and HEAD
below an address that nobody can guess, for its own host name only, and serves the files that it
lists and no others. The pages of the folder are framed in a sandbox: whatever a file contains, it
reaches neither the list nor the network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import stat
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from cyclescope import _native

LOOPBACK = "127.0.0.1"
LISTED = 500
"""The maximum number of files in the list, the newest."""
MAX_BYTES = 64 << 20
"""Larger files are not served."""

STYLE = """\
:root {
  color-scheme: light dark;
  --rule: light-dark(#dde2e9, #2a3340); --quiet: light-dark(#5d6878, #98a4b5);
  --accent: light-dark(#2f4fd0, #8ea4ff); --sheet: light-dark(#ffffff, #171d26);
}
* { box-sizing: border-box; }
body {
  display: grid; grid-template: auto 1fr / 300px 1fr; height: 100vh; margin: 0;
  background: light-dark(#f6f7f9, #10151c); color: light-dark(#16202e, #e4e9f0);
  font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif;
}
header {
  grid-column: 1 / -1; display: flex; flex-wrap: wrap; gap: 4px 20px; align-items: baseline;
  padding: 8px 16px;
}
h1 { margin: 0; font-size: 17px; overflow-wrap: anywhere; }
output, label { color: var(--quiet); font-size: 13px; }
nav { overflow-y: auto; border-top: 1px solid var(--rule); border-right: 1px solid var(--rule); }
ol { margin: 0; padding: 0; list-style: none; }
a {
  display: block; padding: 8px 16px; color: inherit; text-decoration: none;
  border-bottom: 1px solid var(--rule);
}
a:hover { background: light-dark(#eef1f5, #1c232e); }
a:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
a[aria-current] { box-shadow: inset 4px 0 var(--accent); background: var(--sheet); }
a b { display: block; overflow-wrap: anywhere; font-weight: 600; }
a span { color: var(--quiet); font-size: 13px; }
iframe { width: 100%; height: 100%; border: 0; border-top: 1px solid var(--rule); }
@media (max-width: 760px) { body { grid-template: auto 30vh 1fr / 1fr; } }
"""

SCRIPT = """\
"use strict";
const list = document.querySelector("ol");
const frame = document.querySelector("iframe");
const follow = document.querySelector("input");
const status = document.querySelector("output");
let files = [];
let shown = null;

function show(file) {
  if (!file || (shown && shown.name === file.name && shown.time === file.time)) return;
  shown = file;
  frame.src = `page/${encodeURIComponent(file.name)}?${file.time}`;
  frame.title = file.name;
  draw();
}

function draw() {
  list.replaceChildren(...files.map((file) => {
    const link = document.createElement("a");
    const [name, time] = [document.createElement("b"), document.createElement("span")];
    name.textContent = file.name;
    const ago = Math.max(0, Math.round(Date.now() / 1000 - file.time));
    time.textContent = ago < 120 ? `${ago} s ago` : `${Math.round(ago / 60)} min ago`;
    link.href = `#${encodeURIComponent(file.name)}`;
    if (shown && shown.name === file.name) link.setAttribute("aria-current", "true");
    link.append(name, time);
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
}

async function update() {
  try {
    const answer = await fetch("list", { cache: "no-store" });
    const focused = document.activeElement?.hash;
    files = await answer.json();
    draw();
    [...list.querySelectorAll("a")].find((link) => link.hash === focused)?.focus();
    const count = files.length === 1 ? "1 report" : `${files.length} reports`;
    status.textContent = files.length ? count : "No report yet. This page shows it when it comes.";
    // The newest, or what is new of the one that is shown.
    show(follow.checked ? files[0] : files.find((file) => file.name === shown?.name));
  } catch {
    status.textContent = "The server has ended.";
  }
}

addEventListener("hashchange", () => {
  const name = decodeURIComponent(location.hash.slice(1));
  const file = files.find((one) => one.name === name);
  if (!file) return;
  follow.checked = file === files[0];
  show(file);
});
update();
setInterval(update, 2000);
"""

PAGE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Reports · cyclescope</title><style>{style}</style></head>
<body><header><h1>cyclescope: reports as they come</h1><output role="status"></output>
<label><input type="checkbox" checked> Show the newest</label></header>
<nav aria-label="Reports"><ol></ol></nav>
<main><iframe title="Report" sandbox="allow-scripts allow-downloads"></iframe></main>
<script>{script}</script></body></html>
"""


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


INDEX_POLICY = (
    f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
PAGE_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)


class Listed(NamedTuple):
    """A file of the folder."""

    name: str
    time: float


def listed(folder: Path) -> list[Listed]:
    """The pages of a folder, and the reports that have no page, the newest first.

    Symbolic links are left out: they may lead anywhere.
    """
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
            found[file.name] = Listed(file.name, status.st_mtime)
    pages = {Path(name).stem for name in found if name.endswith(".html")}
    shown = [
        each
        for each in found.values()
        if each.name.endswith(".html") or Path(each.name).stem not in pages
    ]
    return sorted(shown, key=lambda each: (-each.time, each.name))[:LISTED]


def rendered(file: Path) -> bytes | None:
    """A page, or the page of a report as JSON; None for what is neither."""
    content = file.read_bytes()
    if file.suffix == ".html":
        return content
    kinds: list[Callable[[str], str]] = [
        lambda text: _native.CycleReport.from_json(text).to_html(),
        lambda text: _native.Heap.from_json(text).to_html(),
    ]
    for render in kinds:
        try:
            return render(content.decode()).encode()
        except ValueError:
            continue
    return None


class Server(ThreadingHTTPServer):
    """Serves the pages of a folder to this machine."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.token = secrets.token_urlsafe(24)
        super().__init__((LOOPBACK, port), _Handler)

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
            page = PAGE.format(style=STYLE, script=SCRIPT).encode()
            self._send(HTTPStatus.OK, page, "text/html", INDEX_POLICY)
        elif path == "list":
            files = [each._asdict() for each in listed(self.server.folder)]
            content = json.dumps(files).encode()
            self._send(HTTPStatus.OK, content, "application/json", "default-src 'none'")
        else:
            self._page(unquote(path.removeprefix("page/")))

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

    def _page(self, name: str) -> None:
        known = {each.name for each in listed(self.server.folder)}
        content = None
        if name in known:
            try:
                content = rendered(self.server.folder / name)
            except OSError:
                content = None
        if content is None:
            self._send(HTTPStatus.NOT_FOUND, b"no such report\n", "text/plain", PAGE_POLICY)
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
