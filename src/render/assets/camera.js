"use strict";
// What part of a drawing is seen. All of the page is readable without any of this script. Text from
// the program goes through textContent only.

/** Boxes are enlarged at most so much; text that is smaller than so much of its size is not read. */
const LARGEST = 1.2;
const READABLE = 0.55;
/** At so much of its size, one still sees what has come where. */
const OVERVIEW = 0.3;

/**
 * Moves and scales a drawing as a whole, by a transform of its box: a change of the viewBox would
 * have the browser lay out every text again.
 */
class Camera {
  /** `view` is the element that the drawing is seen through; calls `onLook` when it shows another part. */
  constructor(view, onLook) {
    this.view = view;
    this.onLook = onLook;
    this.dragged = false;
    view.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    view.addEventListener("pointerdown", (event) => this.grab(event));
    view.addEventListener("dblclick", (event) => this.zoom(0.6, this.point(event)));
  }

  /** Shows this drawing from now on. */
  use(svg) {
    const { x, y, width, height } = svg.viewBox.baseVal;
    this.svg = svg;
    this.all = { x, y, width, height };
    svg.style.width = `${width}px`;
    svg.style.height = `${height}px`;
    this.fit(READABLE);
  }

  /** Shows the whole drawing or, where it would be smaller than `least`, its middle: the cycle. */
  fit(least = 0) {
    this.refit = () => this.fit(least);
    const room = this.view.clientWidth;
    if (!room) return;
    const { x, y, width, height } = this.all;
    const ideal = height * Math.max(Math.min(room / width, LARGEST), READABLE);
    this.view.style.height = `clamp(240px, ${Math.ceil(ideal)}px, 74vh)`;
    const whole = Math.min(room / width, this.view.clientHeight / height, LARGEST);
    const middle = whole < least ? { x: 0, y: 0 } : { x: x + width / 2, y: y + height / 2 };
    this.look(middle, Math.max(whole, least));
  }

  /** The view has another size: what was fitted is fitted again, what was chosen by hand stays. */
  resize() {
    if (this.refit) this.refit();
    else this.look(this.middle, this.scale);
  }

  command(name) {
    if (name === "fit") this.fit();
    else this.zoom(name === "in" ? 0.75 : 1 / 0.75);
  }

  /** Shows `factor` times as much, with this point where it was. */
  zoom(factor, at = this.middle) {
    const scale = Math.min(Math.max(this.scale / factor, 0.02), 6);
    const by = this.scale / scale;
    const { x, y } = this.middle;
    this.refit = null;
    this.look({ x: at.x + (x - at.x) * by, y: at.y + (y - at.y) * by }, scale);
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

  /** Brings a point into sight, if it is not. */
  reveal({ x, y }) {
    const sees = (distance, room) => Math.abs(distance) * this.scale < room * 0.42;
    if (sees(x - this.middle.x, this.view.clientWidth) && sees(y - this.middle.y, this.view.clientHeight)) return;
    this.refit = null;
    this.look({ x, y }, this.scale);
  }

  /** Where in the drawing the pointer is. */
  point(event) {
    const { left, top, width, height } = this.view.getBoundingClientRect();
    return {
      x: this.middle.x + (event.clientX - left - width / 2) / this.scale,
      y: this.middle.y + (event.clientY - top - height / 2) / this.scale,
    };
  }

  /** Puts this point of the drawing into the middle of the view. */
  look(middle, scale) {
    [this.middle, this.scale] = [middle, scale];
    const [across, down] = [this.view.clientWidth / 2, this.view.clientHeight / 2];
    const [x, y] = [across - (middle.x - this.all.x) * scale, down - (middle.y - this.all.y) * scale];
    this.svg.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
    this.seen = {
      left: middle.x - across / scale, right: middle.x + across / scale,
      top: middle.y - down / scale, bottom: middle.y + down / scale,
    };
    this.onLook();
  }
}
