
// Parts of the page that stay compressed until they are needed: the detailed drawings and the DOT.

// Browsers from before 2023 cannot decompress them, so they are not offered there.
if (!window.DecompressionStream) {
  for (const template of document.querySelectorAll("template")) {
    const { view, markdown } = template.dataset;
    const needs = view ? `[data-view="${view}"]` : markdown === undefined ? '[data-save="dot"]' : '[data-copy="markdown"]';
    document.querySelectorAll(needs).forEach((one) => one.remove());
    template.remove();
  }
}

/** Number of lines, boxes and names to draw per frame. More would miss the frame rate. */
const PART = 60;

/** A layer of a drawing: one element per line, of which the page draws some at a time. */
const LAYERS = /^(<g class="(?:lines|boxes|names)">\n)([^]*?)^(<\/g>)$/gm;

/** A drawing that is drawn in parts, most important first: the first boxes, the last lines and names. */
class Growing {
  constructor(text) {
    const inner = [];
    const outer = text.replace(LAYERS, (_, start, lines, end) => {
      inner.push(lines.split("\n").slice(0, -1));
      return start + end;
    });
    const holder = document.createElement("div");
    holder.innerHTML = outer;
    this.svg = holder.firstElementChild;
    this.svg.remove();
    this.layers = [...this.svg.querySelectorAll("g[class]:is(.lines, .boxes, .names)")]
      .map((group, index) => ({ group, lines: inner[index], fromStart: group.classList.contains("boxes") }));
  }

  get whole() {
    return !this.size;
  }

  /** Number of lines, boxes and names still to draw. */
  get size() {
    return this.layers.reduce((size, { lines }) => size + lines.length, 0);
  }

  /** Draws the next part and returns its elements. */
  grow() {
    return this.layers.flatMap(({ group, lines, fromStart }) => {
      const holder = group.cloneNode();
      holder.innerHTML = (fromStart ? lines.splice(0, PART) : lines.splice(-PART)).join("");
      const part = [...holder.children];
      if (fromStart) group.append(...part);
      else group.prepend(...part);
      return part;
    });
  }
}

/** Resolves at the next animation frame. */
function frame() {
  return new Promise(requestAnimationFrame);
}
