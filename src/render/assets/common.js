"use strict";
// Parts that all pages have. Every page is readable without scripts. Text from the program goes through textContent
// only.

/** Is there no pointer that can be at something without touching it? */
const IS_TOUCHED = matchMedia("(hover: none)").matches;

function make(tag, text, ...children) {
  const element = document.createElement(tag);
  if (text) element.textContent = shortened(text);
  element.append(...children);
  return element;
}

/** The text with its middle left out, if it is long. */
function shortened(text, limit = 600) {
  if (text.length <= limit) return text;
  return `${text.slice(0, limit * 0.4)}…${text.slice(text.length - limit * 0.6)}`;
}

/** The text of a template, stored as zlib data in base64. */
async function unpacked(template) {
  const bytes = Uint8Array.from(atob(template.content.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

/** The data of the page as JSON, which is compressed where it is long. */
async function dataText() {
  const packed = document.getElementById("packed");
  return packed ? unpacked(packed) : document.getElementById("report")?.textContent;
}

/** Copies text to the clipboard, also in frames that may not use the Clipboard API. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Copies text and says so on the button for a while. */
async function copyFrom(button, text) {
  const name = button.dataset.name ??= button.textContent;
  // As wide as it is, so that nothing beside it moves.
  button.style.minWidth = `${button.getBoundingClientRect().width}px`;
  button.textContent = (await copy(text)) ? "Copied" : "Copying is blocked";
  setTimeout(() => { button.textContent = name; }, 1500);
}

const THEMES = { "": "as the system", light: "light", dark: "dark" };

/** Shows the page light, dark, or as the system has it. */
function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  for (const button of document.querySelectorAll("[data-theme-switch]")) {
    button.textContent = `Theme: ${THEMES[theme]}`;
    button.hidden = false;
  }
}

/** What the browser keeps for these pages, or keeps now; pages in frames and some files have no storage. */
function stored(key, value) {
  try {
    if (value !== undefined) localStorage.setItem(key, value);
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

const theme = stored("cyclescope-theme");
let chosenTheme = theme in THEMES ? theme : null;
setTheme(chosenTheme ?? "");

// In a notebook's frame, which knows the notebook's theme and is to be as high as the page: see frame.js.
if (document.documentElement.classList.contains("framed") && parent !== window) {
  window.addEventListener("message", ({ source, data }) => {
    if (source !== parent || data?.cyclescope !== "theme") return;
    if (chosenTheme === null && data.theme in THEMES) setTheme(data.theme);
  });
  const fit = () => parent.postMessage({ cyclescope: "size", height: document.body.offsetHeight + 2 }, "*");
  new ResizeObserver(fit).observe(document.body);
  // Frames out of sight observe nothing, and would change their height only as they come into sight.
  for (const wait of [0, 300, 1500]) setTimeout(fit, wait);
}

document.addEventListener("click", (event) => {
  if (!event.target.closest?.("[data-theme-switch]")) return;
  const themes = Object.keys(THEMES);
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "") + 1) % themes.length];
  setTheme(next);
  chosenTheme = next;
  stored("cyclescope-theme", next);
});
