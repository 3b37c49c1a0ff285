"use strict";
// Comfort for the drawings: zoom, move, search, and the facts of the object under the pointer.
// The page says everything without it. Text from the program goes through textContent only.

const report = JSON.parse(document.getElementById("report").textContent);

/** Makes one drawing answer to pointer and keyboard. */
function enliven(figure, leak) {
  const svg = figure.querySelector("svg");
  const facts = figure.querySelector(".facts-of-object");
  figure.classList.add("live");
  figure.querySelector(".tools").hidden = false;
  facts.hidden = false;
  const camera = new Camera(svg);
  const show = (index) => describe(facts, leak, index);
  const selection = new Selection(svg, leak, show);
  show(null);

  for (const button of figure.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => camera.command(button.dataset.zoom));
  }
  figure.querySelector("input").addEventListener("input", (event) => {
    selection.search(event.target.value.trim().toLowerCase());
  });
  svg.addEventListener("pointerover", (event) => {
    const index = nodeAt(event.target);
    show(index ?? selection.index);
  });
  svg.addEventListener("click", (event) => {
    if (!camera.moved) selection.choose(nodeAt(event.target));
  });
  svg.addEventListener("keydown", (event) => {
    const commands = { "+": "in", "=": "in", "-": "out", "0": "fit" };
    if (event.key === "Escape") selection.choose(null);
    else if (event.key in commands) camera.command(commands[event.key]);
  });
}

/** The index of the object whose box this element belongs to, or null. */
function nodeAt(element) {
  const node = element.closest("[data-node]");
  return node ? Number(node.dataset.node) : null;
}

/** What part of a drawing is seen. */
class Camera {
  constructor(svg) {
    this.svg = svg;
    const { x, y, width, height } = svg.viewBox.baseVal;
    this.all = { x, y, width, height };
    this.moved = false;
    svg.tabIndex = 0;
    svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    svg.addEventListener("pointerdown", (event) => this.grab(event));
    svg.addEventListener("dblclick", (event) => this.zoom(0.6, this.point(event)));
    this.fit();
  }

  fit() {
    this.box = { ...this.all };
    this.apply();
  }

  command(name) {
    if (name === "fit") this.fit();
    else this.zoom(name === "in" ? 0.75 : 1 / 0.75);
  }

  /** Shows `factor` times as much, with this point where it was. */
  zoom(factor, at) {
    const { x, y, width, height } = this.box;
    const least = Math.min(200 / width, 1);
    const most = (this.all.width * 2) / width;
    const by = Math.min(Math.max(factor, least), most);
    const fixed = at ?? { x: x + width / 2, y: y + height / 2 };
    this.box = {
      x: fixed.x - (fixed.x - x) * by,
      y: fixed.y - (fixed.y - y) * by,
      width: width * by,
      height: height * by,
    };
    this.apply();
  }

  /** The wheel alone scrolls the page, as everywhere; with Ctrl, or as a pinch, it zooms. */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(event.deltaY * 0.004), this.point(event));
  }

  grab(down) {
    this.moved = false;
    if (down.button !== 0) return;
    const start = { ...this.box };
    const scale = this.svg.getScreenCTM().a;
    const move = (event) => {
      const [dx, dy] = [event.clientX - down.clientX, event.clientY - down.clientY];
      if (!this.moved && Math.hypot(dx, dy) < 4) return;
      this.moved = true;
      this.svg.classList.add("moving");
      this.box.x = start.x - dx / scale;
      this.box.y = start.y - dy / scale;
      this.apply();
    };
    const release = () => {
      this.svg.classList.remove("moving");
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", release);
      window.removeEventListener("pointercancel", release);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", release);
    window.addEventListener("pointercancel", release);
  }

  /** Where in the drawing the pointer is. */
  point(event) {
    const at = new DOMPoint(event.clientX, event.clientY);
    return at.matrixTransform(this.svg.getScreenCTM().inverse());
  }

  apply() {
    const { x, y, width, height } = this.box;
    this.svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
  }
}

/** The chosen object with its neighbours, and the objects that a search finds. */
class Selection {
  constructor(svg, leak, show) {
    this.svg = svg;
    this.leak = leak;
    this.show = show;
    this.index = null;
  }

  choose(index) {
    this.index = index === this.index ? null : index;
    const near = new Set([this.index]);
    const edges = new Set();
    this.leak.graph.edges.forEach((edge, number) => {
      if (edge.from !== this.index && edge.to !== this.index) return;
      edges.add(number);
      near.add(edge.from).add(edge.to);
    });
    this.svg.classList.toggle("chosen", this.index !== null);
    for (const node of this.svg.querySelectorAll("[data-node]")) {
      const number = Number(node.dataset.node);
      node.classList.toggle("near", near.has(number));
      node.classList.toggle("selected", number === this.index);
    }
    for (const edge of this.svg.querySelectorAll("[data-edge]")) {
      edge.classList.toggle("near", edges.has(Number(edge.dataset.edge)));
    }
    this.show(this.index);
  }

  search(text) {
    this.svg.classList.toggle("searching", text !== "");
    for (const node of this.svg.querySelectorAll("[data-node]")) {
      const all = node.querySelector("title").textContent.toLowerCase();
      node.classList.toggle("match", text !== "" && all.includes(text));
    }
  }
}

/** Writes what is known of an object, or how to ask for it. */
function describe(panel, leak, index) {
  const node = leak.graph.nodes[index];
  if (!node) {
    const hint = document.createElement("p");
    hint.textContent = "Point at an object for its facts; click it to see what it touches. " +
      "Drag to move, Ctrl and wheel to zoom.";
    panel.replaceChildren(hint);
    return;
  }
  const facts = [["Object", node.label], ["Type", node.type_name]];
  if (node.location) {
    const { file, line } = node.location;
    facts.push(["Where", line ? `${file}:${line}` : file]);
  }
  const buffer = leak.buffers[node.buffer];
  if (buffer) facts.push(["Holds", `${buffer.bytes.toLocaleString("en")} bytes on ${buffer.device}`]);
  for (const [from, to, title] of [["from", "to", "Refers by"], ["to", "from", "Referred to by"]]) {
    const edges = leak.graph.edges.filter((edge) => edge[from] === index);
    const names = edges.slice(0, 6).map((edge) => {
      const other = leak.graph.nodes[edge[to]]?.label ?? "?";
      return from === "from" ? `${edge.name} → ${other}` : `${edge.name} of ${other}`;
    });
    if (edges.length > 6) names.push(`${edges.length - 6} more`);
    if (names.length) facts.push([title, names.join(", ")]);
  }
  facts.push(...node.details);
  const list = document.createElement("dl");
  list.className = "facts";
  for (const [name, value] of facts) {
    const [pair, term, text] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
    term.textContent = name;
    text.textContent = value.length > 400 ? `${value.slice(0, 400)}…` : value;
    pair.append(term, text);
    list.append(pair);
  }
  panel.replaceChildren(list);
}

for (const section of document.querySelectorAll("section.leak")) {
  const figure = section.querySelector("figure");
  if (figure) enliven(figure, report.leaks[Number(section.dataset.leak)]);
}
