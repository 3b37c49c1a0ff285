
// The visible part of a drawing.

/** Maximum scale of a box, and minimum scale at which text is readable. */
const LARGEST = 1.2;
const READABLE = 0.55;
/** Space around the main part of a drawing. */
const MARGIN = 30;
/** Minimum scale at which the arrangement of a drawing is recognizable. */
const OVERVIEW = 0.3;
/** Minimum scale at which all objects are shown at first. */
const WHOLE = 0.4;

/**
 * Moves and scales a drawing as a whole, by a transform of its box: a change of the viewBox would
 * have the browser lay out every text again.
 */
class Camera {
  /** `view` is the viewport element. */
  constructor(view) {
    this.view = view;
    this.dragged = false;
    view.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    view.addEventListener("pointerdown", (event) => this.grab(event));
    view.addEventListener("dblclick", (event) => this.zoom(0.6, this.point(event)));
  }

  /** Switches to this drawing; one of a single column is shown in full height. */
  use(svg, isColumn, least = READABLE) {
    const { x, y, width, height } = svg.viewBox.baseVal;
    this.svg = svg;
    this.all = { x, y, width, height };
    this.isColumn = isColumn;
    this.main = extent(svg) ?? this.all;
    svg.style.width = `${width}px`;
    svg.style.height = `${height}px`;
    this.fit(least);
  }

  /** Fits the whole drawing or, if its scale would be below `least`, the cycle, the cut and the memory. */
  fit(least = 0) {
    // What was whole stays whole in a narrower window.
    this.refit = () => this.fit(this.isWhole ? 0 : least);
    const room = this.view.clientWidth;
    if (!room) return;
    const { x, y, width, height } = this.all;
    const ideal = height * Math.max(Math.min(room / width, LARGEST), READABLE);
    this.view.style.height = this.isColumn ? `${Math.ceil(ideal)}px` : `clamp(240px, ${Math.ceil(ideal)}px, var(--tallest, 74vh))`;
    const across = (box) => Math.min(room / box.width, this.view.clientHeight / box.height, LARGEST);
    this.isWhole = across(this.all) >= least;
    if (this.isWhole) {
      this.look({ x: x + width / 2, y: y + height / 2 }, across(this.all));
      return;
    }
    const { main } = this;
    const scale = Math.max(across(main), least);
    const fits = main.width * scale <= room && main.height * scale <= this.view.clientHeight;
    this.look(fits ? { x: main.x + main.width / 2, y: main.y + main.height / 2 } : { x: 0, y: 0 }, scale);
  }

  /** Handles a resize: a fitted drawing is fitted again, a manual position stays. */
  resize() {
    if (this.refit) this.refit();
    else this.look(this.middle, this.scale);
  }

  command(name) {
    if (name === "fit") this.fit();
    else this.zoom(name === "in" ? 0.75 : 1 / 0.75);
  }

  /** Zooms by `factor` around a point. */
  zoom(factor, at = this.middle) {
    const scale = Math.min(Math.max(this.scale / factor, 0.02), 6);
    const by = this.scale / scale;
    const { x, y } = this.middle;
    this.refit = null;
    this.look({ x: at.x + (x - at.x) * by, y: at.y + (y - at.y) * by }, scale);
  }

  /** The wheel scrolls the page as usual; with Ctrl, or as a pinch, it zooms. */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(event.deltaY * 0.004), this.point(event));
  }

  grab(down) {
    this.dragged = false;
    if (down.button !== 0) return;
    const { x, y } = this.middle;
    const move = (event) => {
      const [dx, dy] = [event.clientX - down.clientX, event.clientY - down.clientY];
      if (!this.dragged && Math.hypot(dx, dy) < 4) return;
      [this.dragged, this.refit] = [true, null];
      this.view.classList.add("moving");
      this.look({ x: x - dx / this.scale, y: y - dy / this.scale }, this.scale);
    };
    const release = () => {
      this.view.classList.remove("moving");
      for (const [name, listener] of listeners) window.removeEventListener(name, listener);
    };
    const listeners = [["pointermove", move], ["pointerup", release], ["pointercancel", release]];
    for (const [name, listener] of listeners) window.addEventListener(name, listener);
  }

  /** Scrolls a point into view if needed. */
  reveal({ x, y }) {
    const sees = (distance, room) => Math.abs(distance) * this.scale < room * 0.42;
    if (sees(x - this.middle.x, this.view.clientWidth) && sees(y - this.middle.y, this.view.clientHeight)) return;
    this.refit = null;
    this.look({ x, y }, this.scale);
  }

  /** The pointer's position in the drawing. */
  point(event) {
    const { left, top, width, height } = this.view.getBoundingClientRect();
    return {
      x: this.middle.x + (event.clientX - left - width / 2) / this.scale,
      y: this.middle.y + (event.clientY - top - height / 2) / this.scale,
    };
  }

  /** Centres the view on a point of the drawing. */
  look(middle, scale) {
    [this.middle, this.scale] = [middle, scale];
    const [across, down] = [this.view.clientWidth / 2, this.view.clientHeight / 2];
    const [x, y] = [across - (middle.x - this.all.x) * scale, down - (middle.y - this.all.y) * scale];
    this.svg.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
  }
}

/** The part of a drawing with the cycle, the references to remove and the memory, or null. */
function extent(svg) {
  const boxes = [...svg.querySelectorAll(".node:is(.ring, .held) rect, .label.cut rect")].map((rect) =>
    ["x", "y", "width", "height"].map((name) => Number(rect.getAttribute(name))));
  if (!boxes.length) return null;
  const [left, top] = [0, 1].map((at) => Math.min(...boxes.map((box) => box[at])) - MARGIN);
  const [right, bottom] = [0, 1].map((at) => Math.max(...boxes.map((box) => box[at] + box[at + 2])) + MARGIN);
  return { x: left, y: top, width: right - left, height: bottom - top };
}
