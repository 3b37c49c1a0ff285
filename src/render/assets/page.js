
// The page: the visible leak, buttons and keys.

const sections = [...document.querySelectorAll("section.leak")];
const entries = [...document.querySelectorAll("nav a")];
const contents = entries.length ? new Contents(document.querySelector("nav")) : null;
const help = document.getElementById("help");
const figures = new Map();

/** The visible leak. Its drawing is set up when it is first shown. */
let current = 0;
let read = null;
let loading = null;

/** Reads the report, on first use. */
function load() {
  loading ??= dataText().then((text) => { read = JSON.parse(text); });
  return loading;
}

/** The report, once it is read. */
function report() {
  return read;
}

function leakOf(section) {
  return report().leaks[Number(section.dataset.leak)];
}

function showLeak(index) {
  if (!sections[index]) return;
  current = index;
  document.documentElement.classList.add("started");
  sections.forEach((section, other) => {
    section.hidden = other !== index;
  });
  entries.forEach((entry, other) => {
    if (other === index) entry.setAttribute("aria-current", "true");
    else entry.removeAttribute("aria-current");
  });
  contents?.update();
  // Separate tasks, so that the page can paint and respond in between.
  setTimeout(() => inSight(entries[index]));
  setTimeout(() => enliven(sections[index]));
}

/** Makes the drawing of a leak interactive. */
async function enliven(section) {
  await load();
  const element = section.querySelector("figure");
  if (element && !figures.has(section)) figures.set(section, new Figure(element, leakOf(section)));
}

/** Scrolls only the list of leaks until this entry is visible. */
function inSight(entry) {
  const list = entry?.closest("ol");
  if (!list) return;
  const { offsetTop, offsetHeight } = entry.parentElement;
  list.scrollTop = Math.min(Math.max(list.scrollTop, offsetTop + offsetHeight - list.clientHeight), offsetTop);
}

/** Shows the leak that the address names: by its signature, or by its place in the page. */
function fromAddress() {
  const place = /^#leak-(\d+)$/.exec(location.hash);
  const named = sections.findIndex((section) => `#${section.id}` === location.hash);
  const index = named < 0 && place ? Number(place[1]) - 1 : named;
  showLeak(sections[index] ? index : 0);
  sayIfUnknown(named < 0 ? /^#([0-9a-f]{16})$/.exec(location.hash)?.[1] : null);
}

/** Says that the address has the signature of a leak that this page does not have; null takes it back. */
function sayIfUnknown(signature) {
  document.getElementById("unknown")?.remove();
  if (!signature || !sections.length) return;
  const said = make("p", `This page has no leak ${signature}. Another is shown.`);
  said.id = "unknown";
  said.setAttribute("role", "status");
  sections[0].parentElement.prepend(said);
}

/** Shows a leak in place of one that the filters took out of the list, which is no step to go back from. */
function showInstead(hash) {
  if (location.protocol !== "about:") history.replaceState(null, "", hash);
  showLeak(sections.findIndex((section) => `#${section.id}` === hash));
}

/** Goes to the next leak of the list, or to the one before, so that the way back leads here. */
function go(step) {
  const to = contents?.beside(sections[current].id, step);
  if (!to) return;
  const index = sections.findIndex((section) => `#${section.id}` === to);
  if (location.protocol === "about:") showLeak(index);
  else {
    location.hash = to;
    showLeak(index);
  }
  sections[index].scrollIntoView({ block: "start" });
}

/** What a button copies of a leak. */
async function textOf(kind, section) {
  if (kind === "trace") return section.querySelector(".trace pre").textContent;
  if (kind === "markdown") return unpacked(section.querySelector("template[data-markdown]"));
  if (kind === "link") return `${location.href.split("#")[0]}#${section.id}`;
  return section.querySelector(".signature span").textContent;
}

async function onSave(button) {
  const kind = button.dataset.save;
  await load();
  if (kind === "svg") {
    const section = button.closest("section");
    await enliven(section);
    save(await standAlone(figures.get(section)), fileName(leakOf(section), "svg"), "image/svg+xml");
  } else if (kind === "json") {
    save(await dataText(), fileName(report().leaks[0], "json"), "application/json");
  } else {
    const dot = await unpacked(document.getElementById("dot"));
    save(dot, fileName(report().leaks[0], "dot"), "text/vnd.graphviz");
  }
}

document.addEventListener("click", (event) => {
  // In a notebook's frame a link to a leak would resolve to the notebook's address.
  const entry = location.protocol === "about:" ? entries.indexOf(event.target.closest?.("nav a")) : -1;
  if (entry >= 0) {
    event.preventDefault();
    showLeak(entry);
  }
  if (event.target.closest?.(".skip")) {
    event.preventDefault();
    const heading = sections[current].querySelector("h2");
    heading.tabIndex = -1;
    heading.focus();
  }
  const isLink = event.target.closest?.("a, button, input");
  if (!isLink && !String(getSelection())) event.target.closest?.("#ranks tbody tr")?.querySelector("a")?.click();
  const button = event.target.closest?.("button");
  if (button?.dataset.place) copyFrom(button, button.dataset.place);
  else if (button?.dataset.copy) textOf(button.dataset.copy, button.closest("section")).then((text) => copyFrom(button, text));
  else if (button?.dataset.save) onSave(button);
  else if (button && "help" in button.dataset) help.showModal();
  else if (event.target === help) help.close();
});

document.addEventListener("keydown", async (event) => {
  const typing = event.target.closest?.("input, select, textarea");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.key === "/") {
    event.preventDefault();
    // The drawing may not be ready yet.
    await enliven(sections[current]);
    figures.get(sections[current])?.input.focus();
  } else if (event.key === "f") (event.preventDefault(), contents?.input.focus());
  else if (event.key === "?") (event.preventDefault(), help.showModal());
  else if (event.key === "j" || event.key === "k") (event.preventDefault(), go(event.key === "j" ? 1 : -1));
});

for (const details of document.querySelectorAll("details.raw")) {
  details.hidden = false;
  details.addEventListener("toggle", async () => {
    await load();
    if (details.open && details.children.length < 2) details.append(rawTable(leakOf(details.closest("section"))));
  });
}
for (const element of document.querySelectorAll("[data-copy], .save, .share-it")) element.hidden = false;
// Long paths break after a slash, not within file:line.
for (const element of document.querySelectorAll(".fix dd, h4")) {
  for (const text of [...element.childNodes]) {
    if (text.nodeType === 3) text.replaceWith(...text.data.split(/(?<=\/)/).flatMap((part, at) => at ? [make("wbr"), part] : [part]));
  }
}
for (const [event, onPaper] of [["beforeprint", true], ["afterprint", false]]) {
  window.addEventListener(event, () => figures.forEach((figure) => figure.print(onPaper)));
}

window.addEventListener("hashchange", () => {
  fromAddress();
  // Where the list is above the leak, what was chosen would be out of sight.
  if (!BESIDE.matches) sections[current].scrollIntoView({ block: "start" });
});
if (sections.length && sections[0].dataset.leak) fromAddress();

// A notebook's frame has no address.
if (location.protocol === "about:") {
  for (const button of document.querySelectorAll('[data-copy="link"]')) button.hidden = true;
}

// The key of a timeline shows and hides ranks.
for (const key of document.querySelectorAll(".timeline-key")) {
  const svg = key.parentElement.querySelector(".timeline");
  [...key.children].forEach((item, index) => {
    const button = make("button", item.textContent);
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      for (const mark of svg.querySelectorAll(`[data-of="${index}"]`)) mark.setAttribute("display", shown ? "inline" : "none");
    });
    item.replaceChildren(button);
  });
}
