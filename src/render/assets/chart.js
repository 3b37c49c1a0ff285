
// Charts: the values at the pointer or at the arrow keys, and a part enlarged.

/** The width of a chart as it is written, and where its curves begin and end; as in plot.rs. */
const [WIDTH, LEFT, RIGHT] = [900, 92, 14];

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

class Chart {
  constructor(svg) {
    this.svg = svg;
    this.curves = [...svg.querySelectorAll("[data-points]")].map((group) => ({
      group,
      points: group.dataset.points.split("\n").map((line) => {
        // Bars and layers have the place of their base too.
        const [, x, places, words] = /^(\S+) (\S+) (.*)$/.exec(line);
        const [y, base, pause, bottom] = places.split(",").map(Number);
        return { x: Number(x), y, base, pause, bottom, words };
      }),
    }));
    this.floor = svg.viewBox.baseVal.height - 28;
    this.width = WIDTH;
    // What stands at a place of its own across the chart, but for the names of the values and of the axis.
    this.across = [...svg.querySelectorAll(':scope > :is(text:not([x="84"], .break), [d$="v4"], .grid[d*="V"])')].map((element) => ({
      element,
      x: Number(element.getAttribute("x") ?? /^M(\S+)/.exec(element.getAttribute("d"))[1]),
      d: element.getAttribute("d"),
    }));
    this.view = [LEFT, WIDTH - RIGHT];
    this.at = null;
    this.said = make("output", HOW);
    this.said.className = "said";
    const plot = svg.parentElement;
    plot.after(this.said);
    svg.tabIndex = 0;
    this.places = this.add("g");
    svg.classList.add("fitted");
    new ResizeObserver(() => this.fit(plot.clientWidth)).observe(plot);
    this.line = this.add("path", "pointer");
    this.brush = this.add("rect", "brush");
    svg.addEventListener("pointermove", (event) => this.move(this.place(event)));
    svg.addEventListener("pointerdown", (event) => this.grab(event));
    svg.addEventListener("pointerleave", (event) => this.leave(event));
    svg.addEventListener("dblclick", () => this.show([LEFT, WIDTH - RIGHT]));
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  add(name, kind) {
    const element = document.createElementNS(this.svg.namespaceURI, name);
    if (kind) set(element, { class: kind, display: "none" });
    return this.svg.appendChild(element);
  }

  /** In a narrow window the chart is drawn again as wide as there is room, and its words stay as large. */
  fit(room) {
    const width = Math.min(WIDTH, room);
    if (width <= LEFT + RIGHT || width === this.width) return;
    this.width = width;
    set(this.svg, { width, viewBox: `0 0 ${width} ${this.svg.viewBox.baseVal.height}` });
    const part = (width - RIGHT - LEFT) / (WIDTH - RIGHT - LEFT);
    let taken = -Infinity;
    for (const { element, x, d } of this.across) {
      const at = x === WIDTH ? width : LEFT + (x - LEFT) * part;
      if (d) element.setAttribute("d", d.replace(/^M\S+/, `M${at}`));
      else element.setAttribute("x", at);
    }
    // Of words below the axis that would overlap, the first and the last stay.
    const below = this.across.map(({ element }) => element).filter((it) => it.getAttribute("y") > this.floor);
    const end = below.at(-1)?.getBBox().x;
    for (const text of below) {
      const box = text.getBBox();
      const isClear = box.x > taken + 6 && (text === below.at(-1) || box.x + box.width < end - 6);
      text.classList.toggle("crowded", !isClear);
      if (isClear) taken = box.x + box.width;
    }
    this.show(this.view);
  }

  /** Where in the whole chart the pointer is. */
  place(event) {
    const { left, width } = this.svg.getBoundingClientRect();
    return this.whole(((event.clientX - left) / width) * this.width);
  }

  whole(x) {
    const [from, to] = this.view;
    return from + ((x - LEFT) / (this.width - RIGHT - LEFT)) * (to - from);
  }

  shown(x) {
    const [from, to] = this.view;
    return LEFT + ((x - from) / (to - from)) * (this.width - RIGHT - LEFT);
  }

  /** True for a point in the part that is shown. */
  isInside({ x }) {
    return x >= this.view[0] && x <= this.view[1];
  }

  /** Tells the values of the points nearest to a place, of those that are shown. */
  move(place) {
    const nearest = this.shownCurves.flatMap(({ group, points }) => {
      const inside = points.filter((point) => this.isInside(point));
      if (!inside.length) return [];
      const point = inside.reduce((best, it) => (Math.abs(it.x - place) < Math.abs(best.x - place) ? it : best));
      return [{ name: group.dataset.name, point }];
    });
    if (!nearest.length) return;
    // Of several processes, each with times of its own, those that are there.
    const [{ point: first }] = [...nearest].sort((a, b) => Math.abs(a.point.x - place) - Math.abs(b.point.x - place));
    this.at = first.x;
    this.drawLine();
    this.line.setAttribute("display", "inline");
    const here = nearest.filter(({ point }) => Math.abs(point.x - this.at) < 4).slice(0, 8);
    this.said.textContent = here.map(({ name, point }) => (name ? `${name}, ${point.words}` : point.words)).join("; ");
  }

  drawLine() {
    this.line.setAttribute("d", `M${this.shown(this.at)} 14V${this.floor}`);
  }

  /** The curves that are not hidden by the key. */
  get shownCurves() {
    return this.curves.filter(({ group }) => group.getAttribute("display") !== "none");
  }

  leave({ pointerType }) {
    // A finger is taken away to read.
    if (pointerType === "touch") return;
    this.line.setAttribute("display", "none");
    this.said.textContent = HOW;
  }

  /** Enlarges the part over which the pointer is dragged. */
  grab(down) {
    if (down.pointerType === "touch") this.move(this.place(down));
    if (down.button !== 0 || down.pointerType === "touch") return;
    down.preventDefault();
    this.svg.focus({ preventScroll: true });
    const start = this.place(down);
    const ends = (event) => [start, this.place(event)].sort((a, b) => a - b);
    const move = (event) => {
      const [from, to] = ends(event).map((x) => this.shown(x));
      set(this.brush, { x: from, y: 14, width: to - from, height: this.floor - 14, display: "inline" });
    };
    const release = (event) => {
      this.brush.setAttribute("display", "none");
      window.removeEventListener("pointermove", move);
      const [from, to] = ends(event);
      if (this.shown(to) - this.shown(from) > 8) this.show([from, to]);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", release, { once: true });
  }

  /** Shows this part of the chart only. */
  show([from, to]) {
    const view = [Math.max(from, LEFT), Math.min(to, WIDTH - RIGHT)];
    const before = this.view;
    this.view = view;
    const isInside = (point) => this.isInside(point);
    const all = this.curves.flatMap(({ points }) => points.filter(isInside));
    if (!all.length) {
      this.view = before;
      return;
    }
    if (this.at !== null && isInside({ x: this.at })) this.drawLine();
    else if (this.at !== null) this.leave({});
    for (const { group, points } of this.curves) {
      const inside = points.filter(isInside);
      const upper = inside.map(({ x, y }) => `${this.shown(x)} ${y}`);
      const lower = inside.map(({ x, base }) => `${this.shown(x)} ${base}`).reverse();
      const drawn = {
        curve: upper.length < 2 ? "" : `M${upper.join("L")}`,
        area: upper.length < 2 ? "" : `M${[...upper, ...lower].join("L")}Z`,
        bars: inside.map(({ x, y, base }) => `M${this.shown(x)} ${base}V${y}`).join(""),
        pauses: inside.map(({ x, pause, bottom }) => `M${this.shown(x)} ${bottom}V${pause}`).join(""),
      };
      for (const path of group.querySelectorAll("path")) path.setAttribute("d", drawn[path.getAttribute("class")]);
      group.querySelectorAll(".dot").forEach((dot, index) => {
        dot.setAttribute("cx", this.shown(points[index].x));
        dot.setAttribute("display", isInside(points[index]) ? "inline" : "none");
      });
    }
    this.places.replaceChildren();
    if (this.svg.classList.toggle("enlarged", view[1] - view[0] < WIDTH - RIGHT - LEFT - 1)) this.tell(all.sort((a, b) => a.x - b.x));
  }

  /** Says where the first, the last and the middle one of these points are, as far as there is room. */
  tell(points) {
    const taken = [];
    for (const { x, words } of [points[0], points.at(-1), points[points.length >> 1]]) {
      const at = this.shown(x);
      if (taken.some((other) => Math.abs(other - at) < 220)) continue;
      taken.push(at);
      const text = this.places.appendChild(this.add("text"));
      set(text, { x: at, y: this.floor + 18, "text-anchor": at < LEFT + 80 ? "start" : at > this.width - 120 ? "end" : "middle" });
      text.textContent = words.split(": ")[0];
    }
  }

  key(event) {
    const all = this.shownCurves.flatMap(({ points }) => points.map(({ x }) => x)).filter((x) => x >= this.view[0] && x <= this.view[1]);
    const places = [...new Set(all)].sort((a, b) => a - b);
    const here = places.indexOf(this.at);
    if (event.key === "ArrowRight") this.move(places[Math.min(here + 1, places.length - 1)]);
    else if (event.key === "ArrowLeft") this.move(places[Math.max(here - 1, 0)]);
    else if (event.key === "+" || event.key === "=") {
      const middle = this.at ?? (this.view[0] + this.view[1]) / 2;
      const half = (this.view[1] - this.view[0]) / 4;
      this.show([middle - half, middle + half]);
    } else if (event.key === "Escape" || event.key === "0") this.show([LEFT, WIDTH - RIGHT]);
    else return;
    event.preventDefault();
  }
}

const HOW = IS_TOUCHED ? "Tap the curve for its values." :
  "Point at the curve, or use the arrow keys, for its values; drag or press + to enlarge a part, Escape for all.";

for (const svg of document.querySelectorAll("svg:is(.chart, .timeline)")) new Chart(svg);
