
// What the page holds compressed until it is asked for: the more detailed drawings, and the DOT.

/** The text that a template holds as base64 of its zlib form. */
async function unpacked(template) {
  const bytes = Uint8Array.from(atob(template.content.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

// Browsers of before 2023 cannot read them: they are not offered there.
if (!window.DecompressionStream) {
  for (const template of document.querySelectorAll("template")) {
    const { view } = template.dataset;
    document.querySelectorAll(view ? `[data-view="${view}"]` : '[data-save="dot"]').forEach((one) => one.remove());
    template.remove();
  }
}

/** So many lines, boxes and names each are drawn in one frame: more, and none could be kept. */
const PART = 60;

/** What of a drawing is a layer: the elements on lines of their own, of which the page draws some at a time. */
const LAYERS = /^(<g class="(?:lines|boxes|names)">\n)([^]*?)^(<\/g>)$/gm;

/** A drawing that is drawn part by part, what matters most first: the first boxes, the last lines and names. */
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

  /** How many lines, boxes and names are not drawn yet. */
  get size() {
    return this.layers.reduce((size, { lines }) => size + lines.length, 0);
  }

  /** Draws the next part; its elements. */
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

/** The next time that the page is drawn. */
function frame() {
  return new Promise(requestAnimationFrame);
}
