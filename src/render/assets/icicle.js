
// The owner treemap: zoom, keyboard and the facts of a block. Without this script the blocks show
// only their names.

/** Blocks narrower than this percentage of the drawing are not drawn. */
const DRAWN = 0.04;

const HINT = IS_TOUCHED ? "Tap a block to enlarge it and see its path and facts." :
  "Point at a block to see its path and facts; click it to enlarge it. The arrow keys move between blocks, " +
  "Enter enlarges a block, Escape or Backspace goes back, Home shows all.";

/** `64.0 MiB`, as the rest of the page writes it. */
function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  for (; bytes >= (unit ? 1023.95 : 1024) && unit < 6; unit++) bytes /= 1024;
  return unit ? `${bytes.toFixed(1)} ${units[unit]}` : `${bytes} ${bytes === 1 ? "byte" : "bytes"}`;
}

function percent(part, whole) {
  const share = whole ? (100 * part) / whole : 0;
  return `${share >= 10 || share === 0 ? share.toFixed(0) : share.toPrecision(2)} %`;
}

function title({ edge, label }) {
  return edge ? `${edge} (${label})` : label;
}

/** How wide a letter of the blocks is, in pixels. */
const LETTER = 7.3;

/** What a block says that is so many pixels wide: as much as there is room for, and nothing rather than a letter. */
function words(block, pixels) {
  const room = Math.floor((pixels - 8) / LETTER);
  const all = [`${title(block)}  ${size(block.bytes)}`, title(block), block.edge || block.label];
  return all.find((text) => text.length <= room) ?? (room > 3 ? `${all[2].slice(0, room - 1)}…` : "");
}

class Icicle {
  constructor(figure, { blocks, categories }) {
    this.blocks = blocks;
    this.categories = categories;
    this.svg = figure.querySelector("svg.icicle");
    this.trail = figure.querySelector(".trail");
    this.panel = figure.querySelector(".facts-of-block");
    this.elements = [...this.svg.querySelectorAll(".block")];
    this.below = blocks.map(() => []);
    blocks.forEach(({ parent }, index) => this.below[parent]?.push(index));
    this.svg.tabIndex = 0;
    this.trail.hidden = this.panel.hidden = false;
    figure.classList.add("live");
    this.listen();
    this.zoom(0);
    this.choose(0);
    new ResizeObserver(() => this.name()).observe(this.svg);
  }

  listen() {
    const at = (event) => this.elements.indexOf(event.target.closest(".block"));
    this.svg.addEventListener("click", (event) => {
      const index = at(event);
      if (index < 0) return;
      this.zoom(index);
      this.choose(index);
    });
    this.svg.addEventListener("pointerover", (event) => this.describe(at(event)));
    this.svg.addEventListener("pointerleave", () => this.describe(this.chosen));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  /** The ancestors of a block, outermost first, and the block itself. */
  way(index) {
    const way = [];
    for (let at = index; at != null; at = this.blocks[at].parent) way.unshift(at);
    return way;
  }

  /** Zooms to one block, with its ancestors and its parts. */
  zoom(index) {
    this.zoomed = index;
    const { start, bytes } = this.blocks[index];
    const above = new Set(this.way(index));
    this.shown = this.blocks.map((block, at) => {
      const from = Math.max(block.start, start);
      const to = Math.min(block.start + block.bytes, start + bytes);
      const width = (100 * (to - from)) / Math.max(bytes, 1);
      const element = this.elements[at];
      const visible = above.has(at) || width > DRAWN;
      element.setAttribute("display", visible ? "inline" : "none");
      if (!visible) return false;
      element.setAttribute("x", `${above.has(at) ? 0 : (100 * (from - start)) / bytes}%`);
      element.setAttribute("width", `${above.has(at) ? 100 : width}%`);
      element.classList.toggle("above", above.has(at) && at !== index);
      return true;
    });
    this.name();
    const buttons = this.way(index).map((at) => {
      const button = make("button", title(this.blocks[at]));
      button.type = "button";
      if (at === index) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => {
        this.zoom(at);
        this.choose(at);
        this.svg.focus({ preventScroll: true });
      });
      return button;
    });
    this.trail.replaceChildren(...buttons);
  }

  /** Writes into each block that is shown what there is room for. */
  name() {
    const whole = this.svg.clientWidth;
    this.elements.forEach((element, index) => {
      if (!this.shown[index]) return;
      const said = words(this.blocks[index], (whole * parseFloat(element.getAttribute("width"))) / 100);
      let text = element.querySelector("text");
      if (said && !text) {
        text = document.createElementNS("http://www.w3.org/2000/svg", "text");
        text.setAttribute("x", "6");
        text.setAttribute("y", "16");
        element.append(text);
      }
      if (text && text.textContent !== said) text.textContent = said;
    });
  }

  choose(index) {
    this.elements[this.chosen]?.classList.remove("chosen");
    this.elements[this.chosen]?.setAttribute("aria-selected", "false");
    this.chosen = index;
    const element = this.elements[index];
    element.classList.add("chosen");
    element.setAttribute("aria-selected", "true");
    this.svg.setAttribute("aria-activedescendant", element.id);
    this.describe(index);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { parent } = this.blocks[this.chosen];
    const visible = (indices) => indices.filter((index) => this.shown[index]);
    const beside = visible(this.below[parent] ?? [this.chosen]);
    const next = beside[beside.indexOf(this.chosen) + (event.key === "ArrowRight" ? 1 : -1)];
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") this.choose(next ?? this.chosen);
    else if (event.key === "ArrowDown") this.choose(visible(this.below[this.chosen])[0] ?? this.chosen);
    else if (event.key === "ArrowUp") this.choose(parent ?? this.chosen);
    else if (event.key === "Enter" || event.key === " ") this.zoom(this.chosen);
    else if (event.key === "Escape" || event.key === "Backspace") this.out();
    else if (event.key === "Home") this.out(0);
    else return;
    event.preventDefault();
  }

  /** Updates the path to the enlarged block. */
  out(to = this.blocks[this.zoomed].parent ?? 0) {
    this.zoom(to);
    this.choose(to);
  }

  /** Writes the facts of a block and the path to it. */
  describe(index) {
    const block = this.blocks[index];
    if (!block) return;
    const facts = make("div", "", make("h3", title(block)), this.facts(block));
    const way = make("div", "", make("h3", "Path"), index ? this.steps(index) : make("p", HINT));
    if (block.also?.length) {
      way.append(make("h3", "Also held by"), make("ul", "", ...block.also.map((words) => make("li", words))));
    }
    this.panel.replaceChildren(facts, way);
  }

  facts(block) {
    const list = make("dl");
    const add = (term, ...values) => list.append(make("dt", term), ...values.map((value) => make("dd", value)));
    const buffers = `${block.buffers.toLocaleString("en")} ${block.buffers === 1 ? "buffer" : "buffers"}`;
    add("Size", `${size(block.bytes)}, ${percent(block.bytes, this.blocks[0].bytes)} of the total, ${buffers}`);
    if (block.memory) add("Contents", block.memory);
    add("Category", ...block.categories
      .map((bytes, at) => ({ bytes, words: this.categories[at] }))
      .filter(({ bytes }) => bytes)
      .sort((a, b) => b.bytes - a.bytes)
      .map(({ bytes, words }) => `${words}: ${size(bytes)}`));
    if (block.retained != null) add("Retained size", size(block.retained));
    if (block.place) add("Source", block.place);
    return list;
  }

  steps(index) {
    const list = make("ol");
    list.className = "way";
    for (const at of this.way(index).slice(1)) {
      const { edge, label, place, kind } = this.blocks[at];
      if (edge) list.append(make("li", "", make("i", `↓ ${edge}`)));
      const line = make("li", "", make("b", kind === "itself" ? `■ ${label}` : label));
      if (place) line.append(" ", make("span", place));
      list.append(line);
    }
    return list;
  }
}

for (const svg of document.querySelectorAll("svg.icicle")) {
  dataText().then((text) => new Icicle(svg.closest("figure"), JSON.parse(text)));
}
