"""The page of ``cyclescope serve``: the list of reports, and the one that is shown."""

from __future__ import annotations

import base64
import hashlib
import html
import shlex
from pathlib import Path

STYLE = """\
:root {
  color-scheme: light dark;
  --rule: light-dark(#dde2e9, #2a3340); --quiet: light-dark(#5d6878, #98a4b5);
  --accent: light-dark(#2f4fd0, #8ea4ff); --sheet: light-dark(#ffffff, #171d26);
  --raised: light-dark(#eef1f5, #1c232e); --wrong: light-dark(#b3261e, #ff8a80);
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body {
  display: grid; grid-template: auto 1fr / 320px 1fr; height: 100vh; height: 100dvh; margin: 0;
  background: light-dark(#f6f7f9, #10151c); color: light-dark(#16202e, #e4e9f0);
  font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif;
}
header {
  grid-column: 1 / -1; display: flex; flex-wrap: wrap; gap: 4px 20px; align-items: center;
  padding: 8px 16px; border-bottom: 1px solid var(--rule);
}
h1 { margin: 0; font-size: 17px; overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
output, label { color: var(--quiet); font-size: 13px; }
output.wrong { color: var(--wrong); font-weight: 600; }
label { display: flex; gap: 6px; align-items: center; }
input { margin: 0; accent-color: var(--accent); }
button {
  padding: 2px 10px; border: 1px solid var(--accent); border-radius: 6px; background: var(--sheet);
  color: var(--accent); font: inherit; font-size: 13px; cursor: pointer;
}
button.skip { position: absolute; z-index: 1; }
button.skip:not(:focus) { clip-path: inset(50%); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
nav { overflow-y: auto; border-right: 1px solid var(--rule); }
ol { margin: 0; padding: 0; list-style: none; }
a {
  display: block; padding: 8px 16px; color: inherit; text-decoration: none;
  border-bottom: 1px solid var(--rule);
}
a:hover { background: var(--raised); }
a:focus-visible { outline-offset: -2px; }
a[aria-current] { box-shadow: inset 4px 0 var(--accent); background: var(--sheet); }
a * { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; }
a b, a span { overflow-wrap: anywhere; font-weight: 600; }
a span { color: var(--quiet); font-size: 12px; font-weight: 400; }
a.new b::before { content: "● "; color: var(--accent); }
main { min-height: 0; }
iframe { display: block; width: 100%; height: 100%; border: 0; }
.empty { max-width: 70ch; padding: 32px 24px; }
h2 { margin: 0 0 8px; font-size: 20px; }
pre {
  padding: 10px 14px; border-radius: 6px; background: var(--raised); font-size: 13px;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
@media (max-width: 760px) {
  body { grid-template: auto fit-content(30vh) 1fr / minmax(0, 1fr); }
  nav { max-height: 30vh; border-right: 0; border-bottom: 1px solid var(--rule); }
}
"""

SCRIPT = """\
"use strict";
const [list, empty, frame] = ["ol", ".empty", "iframe"].map((one) => document.querySelector(one));
const [skip, again] = document.querySelectorAll("button");
const follow = document.querySelector("input");
const status = document.querySelector("output");
const entries = new Map();
const seen = new Set();
let files = [];
let shown = null;
let loaded = false;

/** The address of a report in the list; without one, the newest is followed. */
const address = (file) => `#${encodeURIComponent(file.name)}`;
const chosen = () =>
  location.hash ? files.find((file) => address(file) === location.hash) : files[0];

/** The text with the characters that turn what follows written out. */
function plain(text) {
  return text.replace(/[\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]/g,
    (one) => `\\\\u${one.charCodeAt(0).toString(16)}`);
}

function say(text, isWrong = false) {
  // The same words again would be read aloud again.
  if (status.textContent !== text) status.textContent = text;
  status.classList.toggle("wrong", isWrong);
}

function ago(time) {
  const seconds = Math.max(0, Math.round(Date.now() / 1000 - time));
  if (seconds < 120) return `${seconds} s ago`;
  if (seconds < 2 * 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 2 * 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} days ago`;
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The entry of a report, the same one each time: a click and the focus outlast an update. */
function entry(file) {
  let made = entries.get(file.name);
  if (!made) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const [title, name, age] = ["b", "span", "span"].map((tag) => document.createElement(tag));
    link.href = address(file);
    link.append(title, name, age);
    item.append(link);
    made = { item, link, title, name, age };
    entries.set(file.name, made);
  }
  write(made.title, plain(file.title || file.name));
  write(made.name, file.title ? plain(file.name) : "");
  write(made.age, seen.has(file.name) ? ago(file.time) : `new · ${ago(file.time)}`);
  made.age.title = new Date(file.time * 1000).toLocaleString();
  made.link.title = plain(file.name);
  made.link.classList.toggle("new", !seen.has(file.name));
  if (shown?.name === file.name) made.link.setAttribute("aria-current", "true");
  else made.link.removeAttribute("aria-current");
  return made.item;
}

function draw() {
  const items = files.map(entry);
  for (const [name, { item }] of entries) {
    if (files.every((file) => file.name !== name)) {
      item.remove();
      entries.delete(name);
    }
  }
  items.forEach((item, index) => {
    if (list.children[index] !== item) list.insertBefore(item, list.children[index] ?? null);
  });
  const unread = files.filter((file) => !seen.has(file.name)).length;
  document.title = `${unread ? `(${unread}) ` : ""}Reports · cyclescope`;
  empty.hidden = files.length > 0 || shown !== null;
  frame.hidden = shown === null;
}

/** Loads a report in place of the one before: the history has only what was chosen. */
function load(file) {
  shown = file;
  seen.add(file.name);
  again.hidden = true;
  frame.title = plain(file.title || file.name);
  const page = `page/${file.path}?${file.time}`;
  frame.contentWindow.location.replace(new URL(page, location.href.split("#")[0]).href);
}

/** Shows what is chosen, or the newest. A report that changes while somebody is in it waits. */
function show() {
  follow.checked = !location.hash;
  const file = chosen();
  if (file && file.name !== shown?.name) load(file);
  else if (file && file.time !== shown.time) {
    if (document.activeElement === frame) again.hidden = false;
    else load(file);
  }
  draw();
}

async function update() {
  try {
    const answer = await fetch("list", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    files = await answer.json();
  } catch {
    say("The server has ended. Start it again, and open the URL that it prints.", true);
    return;
  }
  if (!loaded) files.forEach((file) => seen.add(file.name));
  loaded = true;
  show();
  const newest = files.length === LISTED ? "the newest " : "";
  const count = `${newest}${files.length} ${files.length === 1 ? "report" : "reports"}`;
  const isGone = shown && files.every((file) => file.name !== shown.name);
  say(isGone ? `${count}; the one that is shown is no longer in the folder` : count);
}

async function watch() {
  await update();
  setTimeout(watch, 2000);
}

follow.addEventListener("change", () => {
  const place = follow.checked || !shown ? location.pathname : address(shown);
  history.pushState(null, "", place);
  show();
});
skip.addEventListener("click", () => frame.focus());
again.addEventListener("click", () => {
  load(chosen());
  frame.focus();
});
addEventListener("popstate", show);
watch();
"""

PAGE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Reports · cyclescope</title><style>{style}</style></head>
<body><header><button type="button" class="skip">Go to the report</button>
<h1>Reports in {folder}</h1>
<label><input type="checkbox" checked> Show the newest</label><output role="status"></output>
<button type="button" hidden>This report has changed: show it again</button></header>
<nav aria-label="Reports"><ol></ol></nav>
<main><div class="empty"><h2>No report yet</h2>
<p>This page shows each report when it is written. For example:</p>
<pre>{command}</pre></div>
<iframe title="Report" sandbox="{sandbox}" hidden></iframe></main>
<script>{script}</script></body></html>
"""

MESSAGE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title>{title}</title><style>body {{ padding: 16px; font: 15px/1.5 system-ui, sans-serif; }}</style>
</head><body><h1>{title}</h1></body></html>
"""

SANDBOX = "allow-scripts allow-downloads"


def page(folder: Path, script: str) -> str:
    """The page of the list."""
    shown = str(folder)
    command = f"cyclescope run --report-dir {shlex.quote(shown)} train.py"
    return PAGE.format(
        style=STYLE,
        script=script,
        sandbox=SANDBOX,
        folder=html.escape(shown),
        command=html.escape(command),
    )


def message(text: str) -> bytes:
    """A page that says why there is no report."""
    return MESSAGE.format(title=html.escape(text)).encode()


def script(listed: int) -> str:
    """The script of the page, for a list of up to so many reports."""
    return SCRIPT.replace("LISTED", str(listed))


def policy(script: str) -> str:
    """What the page of the list may do: run its own script, and show what is served with it."""
    return (
        f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(script)}; "
        "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


PAGE_POLICY = (
    f"sandbox {SANDBOX}; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
