"use strict";
// What part of a drawing is seen. All of the page is readable without any of this script. Text from
// the program goes through textContent only.

/** Boxes are enlarged at most so much, and a drawing is shown whole unless that made it unreadable. */
const LARGEST = 1.2;
const READABLE = 0.36;

class Camera {
  /** `view` is the element that the drawing fills. */
  constructor(svg, view) {
    this.svg = svg;
    this.view = view;
    const { x, y, width, height } = svg.viewBox.baseVal;
    this.all = { x, y, width, height };
    this.touched = false;
    this.dragged = false;
    svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    svg.addEventListener("pointerdown", (event) => this.grab(event));
    svg.addEventListener("dblclick", (event) => this.zoom(0.6, this.point(event)));
  }

  /** How high the drawing is where it is as wide as the view, or as large as boxes may be. */
  height() {
    const scale = Math.min(this.view.clientWidth / this.all.width, LARGEST);
    return this.all.height * Math.max(scale, READABLE);
  }

  /** The whole drawing or, where that is too much to read, its middle: the cycle. */
  fit() {
    const room = { width: this.view.clientWidth, height: this.view.clientHeight };
    if (!room.width || !room.height) return;
    const { x, y, width, height } = this.all;
    const whole = Math.min(room.width / width, room.height / height, LARGEST);
    const scale = Math.max(whole, READABLE);
    const middle = whole < READABLE ? { x: 0, y: 0 } : { x: x + width / 2, y: y + height / 2 };
    this.touched = false;
    this.look(middle, room.width / scale, room.height / scale);
  }

  command(name) {
    if (name === "fit") this.fit();
    else this.zoom(name === "in" ? 0.75 : 1 / 0.75);
  }

  /** Shows `factor` times as much, with this point where it was. */
  zoom(factor, at) {
    const { x, y, width, height } = this.box;
    const least = Math.min(200 / width, 1);
    const most = Math.max((this.all.width * 2) / width, 1);
    const by = Math.min(Math.max(factor, least), most);
    const fixed = at ?? { x: x + width / 2, y: y + height / 2 };
    this.touched = true;
    this.apply({
      x: fixed.x - (fixed.x - x) * by,
      y: fixed.y - (fixed.y - y) * by,
      width: width * by,
      height: height * by,
    });
  }

  /** The wheel alone scrolls the page, as everywhere; with Ctrl, or as a pinch, it zooms. */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(event.deltaY * 0.004), this.point(event));
  }

  grab(down) {
    this.dragged = false;
    if (down.button !== 0) return;
    const start = this.box;
    const scale = this.svg.getScreenCTM().a;
    const move = (event) => {
      const [dx, dy] = [event.clientX - down.clientX, event.clientY - down.clientY];
      if (!this.dragged && Math.hypot(dx, dy) < 4) return;
      this.dragged = this.touched = true;
      this.svg.classList.add("moving");
      this.apply({ ...start, x: start.x - dx / scale, y: start.y - dy / scale });
    };
    const release = () => {
      this.svg.classList.remove("moving");
      for (const [name, listener] of listeners) window.removeEventListener(name, listener);
    };
    const listeners = [["pointermove", move], ["pointerup", release], ["pointercancel", release]];
    for (const [name, listener] of listeners) window.addEventListener(name, listener);
  }

  /** Brings a point into sight, if it is not. */
  reveal({ x, y }) {
    const { x: left, y: top, width, height } = this.box;
    const [far, near] = [0.92, 0.08];
    const inside = (at, from, size) => at > from + near * size && at < from + far * size;
    if (inside(x, left, width) && inside(y, top, height)) return;
    this.touched = true;
    this.look({ x, y }, width, height);
  }

  /** Where in the drawing the pointer is. */
  point(event) {
    const at = new DOMPoint(event.clientX, event.clientY);
    return at.matrixTransform(this.svg.getScreenCTM().inverse());
  }

  look({ x, y }, width, height) {
    this.apply({ x: x - width / 2, y: y - height / 2, width, height });
  }

  apply(box) {
    this.box = box;
    this.svg.setAttribute("viewBox", `${box.x} ${box.y} ${box.width} ${box.height}`);
  }
}
