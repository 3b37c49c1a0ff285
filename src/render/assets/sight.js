
// What of a large drawing is laid out: only what is in sight, and from afar its outlines. When the
// system turns dark or light, a browser styles anew all that is there, before any script runs.

/** A drawing of fewer lines, boxes and names is laid out as a whole. */
const LARGE = 600;
/** At less of its size, nothing in a drawing can be read. */
const FAR = 0.3;
/** So many lines, boxes and names come into sight in one frame, or leave it. */
const TURNED = 150;

class Sight {
  constructor(svg, selection, camera) {
    Object.assign(this, { svg, selection, camera });
    this.covered = new Map();
    this.away = new Set();
    this.outlines = makeSvg("g", "outlines");
    this.outlines.setAttribute("aria-hidden", "true");
  }

  get far() {
    return !(this.camera.scale >= FAR);
  }

  /** Learns of elements of the drawing. */
  add(elements) {
    this.stale = true;
    for (const element of elements) {
      this.covered.set(element, bounds(element));
      if (!this.sees(element)) this.turn(element);
    }
  }

  /** Whether an element is to be seen now: what was chosen, and what is near it, always is. */
  sees(element) {
    if (this.far) return this.selection.near.has(element);
    const [{ left, top, right, bottom }, seen] = [this.covered.get(element), this.camera.seen];
    const within = left < seen.right && right > seen.left && top < seen.bottom && bottom > seen.top;
    return within || this.selection.near.has(element);
  }

  /** The box at a point of the drawing, or null. */
  at({ x, y }) {
    return this.selection.boxes.find(({ element }) => {
      const { left, top, right, bottom } = this.covered.get(element);
      return left < x && x < right && top < y && y < bottom;
    }) ?? null;
  }

  /** An element comes into sight, or leaves it. */
  turn(element) {
    if (!this.away.delete(element)) this.away.add(element);
    element.classList.toggle("away", this.away.has(element));
    // Chromium styles what is within an SVG element also where that is not displayed, unless it
    // requires what no browser has.
    element.toggleAttribute("requiredExtensions", this.away.has(element));
  }

  /** Lays out what is in sight now, a part each frame; until it is there, its outlines are. */
  async update() {
    const updating = this.updating = {};
    const turned = [...this.covered.keys()].filter((element) => this.sees(element) === this.away.has(element));
    if (this.far || turned.length > TURNED) this.outline();
    for (let start = 0; start < turned.length; start += TURNED) {
      if (start) await frame();
      if (this.updating !== updating) return;
      turned.slice(start, start + TURNED).forEach((element) => this.turn(element));
    }
    if (!this.far) this.outlines.remove();
  }

  /** Lays out all of it, for paper. */
  whole() {
    this.updating = null;
    for (const element of this.away) this.turn(element);
    this.outlines.remove();
  }

  /** What was marked looks so from afar too. */
  mark() {
    this.stale = true;
    this.update();
  }

  /** Shows all lines and boxes as outlines: one of each kind. */
  outline() {
    const lines = this.svg.querySelector(".lines");
    if (this.stale) {
      const shapes = new Map();
      for (const element of this.svg.querySelectorAll(":is(.lines, .boxes) > g")) {
        const kind = [...element.classList].filter((word) => word !== "away").join(" ");
        shapes.set(kind, (shapes.get(kind) ?? "") + shape(element));
      }
      this.outlines.replaceChildren(...[...shapes].map(([kind, d]) => outline(kind, d)));
      this.stale = false;
    }
    if (!this.outlines.isConnected) lines.before(this.outlines);
  }
}

/** The numbers of an element's attributes of these names. */
function numbers(element, ...names) {
  return names.map((name) => Number(element.getAttribute(name)));
}

/** What an element covers: its box, or the points that its line bends to. */
function bounds(element) {
  const rect = element.querySelector("rect");
  if (rect) {
    const [left, top, width, height] = numbers(rect, "x", "y", "width", "height");
    return { left, top, right: left + width, bottom: top + height };
  }
  const points = shape(element).match(/-?[\d.]+/g).map(Number);
  const [across, down] = [0, 1].map((odd) => points.filter((_, index) => index % 2 === odd));
  return { left: Math.min(...across), top: Math.min(...down), right: Math.max(...across), bottom: Math.max(...down) };
}

/** The path of a line, or that around a box. */
function shape(element) {
  const line = element.querySelector(".line");
  if (line) return line.getAttribute("d");
  const [x, y, width, height] = numbers(element.querySelector("rect"), "x", "y", "width", "height");
  return `M${x} ${y}h${width}v${height}h${-width}z`;
}

/** All lines of a kind, or all boxes. */
function outline(kind, d) {
  const [layer, ...kinds] = kind.split(" ");
  const group = makeSvg("g", kinds.join(" "));
  const path = makeSvg("path", layer === "node" ? "box" : "line");
  path.setAttribute("d", d);
  group.append(path);
  return group;
}

function makeSvg(name, classes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  element.setAttribute("class", classes);
  return element;
}
