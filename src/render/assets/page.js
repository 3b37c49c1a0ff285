
// The page: the visible leak, buttons and keys.

const sections = [...document.querySelectorAll("section.leak")];
const entries = [...document.querySelectorAll("nav a")];
const help = document.getElementById("help");
const figures = new Map();

/** The visible leak. Its drawing is set up when it is first shown. */
let current = 0;
let read = null;

/** The report, parsed on first use. */
function report() {
  read ??= JSON.parse(document.getElementById("report").textContent);
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
  // Separate tasks, so that the page can paint and respond in between.
  setTimeout(() => inSight(entries[index]));
  setTimeout(() => enliven(sections[index]));
}

/** Makes the drawing of a leak interactive. */
function enliven(section) {
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

function fromAddress() {
  const index = sections.findIndex((section) => `#${section.id}` === location.hash);
  showLeak(Math.max(index, 0));
}

async function onCopy(button) {
  const section = button.closest("section");
  const text = button.dataset.copy === "trace" ? section.querySelector(".trace pre").textContent
    : leakOf(section).signature;
  button.textContent = (await copy(text)) ? "Copied" : "Copying is blocked";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

async function onSave(button) {
  const kind = button.dataset.save;
  if (kind === "svg") {
    const section = button.closest("section");
    enliven(section);
    save(await standAlone(figures.get(section)), fileName(leakOf(section), "svg"), "image/svg+xml");
  } else if (kind === "json") {
    save(document.getElementById("report").textContent, fileName(report().leaks[0], "json"), "application/json");
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
  const button = event.target.closest?.("button");
  if (button?.dataset.copy) onCopy(button);
  else if (button?.dataset.save) onSave(button);
  else if (button && "help" in button.dataset) help.showModal();
  else if (event.target === help) help.close();
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  // Wait for the drawing if it is not ready yet.
  if (event.key === "/") enliven(sections[current]);
  const figure = figures.get(sections[current]);
  if (event.key === "/" && figure) figure.input.focus();
  else if (event.key === "?") help.showModal();
  else if (event.key === "j" || event.key === "k") {
    showLeak(current + (event.key === "j" ? 1 : -1));
    sections[current].scrollIntoView({ block: "start" });
  } else return;
  event.preventDefault();
});

for (const details of document.querySelectorAll("details.raw")) {
  details.hidden = false;
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length < 2) details.append(rawTable(leakOf(details.closest("section"))));
  });
}
for (const element of document.querySelectorAll("[data-copy], .save")) element.hidden = false;
window.addEventListener("hashchange", fromAddress);
if (sections.length) fromAddress();
