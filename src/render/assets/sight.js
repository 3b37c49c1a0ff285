
// Lays out only the visible part of a large drawing, and outlines when it is zoomed out. A change
// between dark and light makes the browser restyle every element before any script runs.

/** Drawings with fewer lines, boxes and names are laid out completely. */
const LARGE = 600;
/** Below this scale, text is unreadable. */
const FAR = 0.3;
/** Number of lines, boxes and names to show or hide per frame. */
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

  /** Registers elements of the drawing. */
  add(elements) {
    this.stale = true;
    for (const element of elements) {
      this.covered.set(element, bounds(element));
      if (!this.sees(element)) this.turn(element);
    }
  }

  /** True if an element should be visible now. The selection and its neighbours always are. */
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

  /** Shows or hides an element. */
  turn(element) {
    if (!this.away.delete(element)) this.away.add(element);
    element.classList.toggle("away", this.away.has(element));
    // Chromium styles the children of an SVG element even if it is not displayed, unless it requires
    // an extension that no browser has.
    element.toggleAttribute("requiredExtensions", this.away.has(element));
  }

  /** Lays out the visible part, some elements per frame, with outlines as placeholders. */
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

  /** Lays out everything, for printing. */
  whole() {
    this.updating = null;
    for (const element of this.away) this.turn(element);
    this.outlines.remove();
  }

  /** Applies highlights to the outlines too. */
  mark() {
    this.stale = true;
    this.update();
  }

  /** Shows all lines and boxes as outlines, one path per kind. */
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

/** The numeric values of these attributes of an element. */
function numbers(element, ...names) {
  return names.map((name) => Number(element.getAttribute(name)));
}

/** The extent of an element: its box, or the control points of its line. */
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

/** The path of a line, or the outline of a box. */
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
