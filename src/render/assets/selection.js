
// Selection, search and filter in a drawing.

/** The references of each object, by its index in the leak's graph; computed once per leak. */
function referencesOf(leak) {
  leak.references ??= leak.graph.edges.reduce((all, edge, number) => {
    for (const end of new Set([edge.from, edge.to])) (all[end] ??= []).push(number);
    return all;
  }, []);
  return leak.references;
}

/** Number of elements to highlight or dim per frame. */
const MARKED = 500;

class Selection {
  /** Calls `onChange` with the selected box, or null. */
  constructor(svg, leak, onChange) {
    this.svg = svg;
    this.leak = leak;
    this.onChange = onChange;
    this.onMark = () => {};
    this.chosen = null;
    this.near = new Set();
    this.matches = [];
    this.searching = false;
    this.elements = [];
    this.boxes = [];
    this.boxOf = new Map();
    this.byNumber = new Map();
    this.lines = new Map();
    this.add(svg.querySelectorAll(".node, [data-edge]"));
  }

  /** Registers elements of the drawing. */
  add(elements) {
    for (const element of elements) {
      const { edge, node, more } = element.dataset;
      this.elements.push(element);
      if (edge !== undefined) this.lines.set(Number(edge), [...(this.lines.get(Number(edge)) ?? []), element]);
      else if (node !== undefined || more !== undefined) this.addBox(element);
    }
  }

  addBox(element) {
    element.id ||= `${this.svg.id}-more-${this.boxes.length}`;
    const number = element.dataset.node === undefined ? null : Number(element.dataset.node);
    const node = this.leak.graph.nodes[number];
    const words = node ? wordsOf(node) : element.textContent;
    const hidden = (element.dataset.more ?? "").split(" ").filter(Boolean).map(Number);
    // Screen readers announce its name.
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", shortened(node?.label ?? words, 200));
    const box = { element, number, node, hidden, words: words.toLowerCase() };
    this.boxes.push(box);
    this.boxOf.set(element, box);
    if (node) this.byNumber.set(number, box);
  }

  /** The box that contains an element, or null. */
  at(element) {
    return this.boxOf.get(element.closest(".node")) ?? null;
  }

  choose(box) {
    this.chosen?.element.classList.remove("selected");
    this.chosen = box;
    const near = new Set();
    if (box) {
      near.add(box.element);
      box.element.classList.add("selected");
      this.svg.setAttribute("aria-activedescendant", box.element.id);
      for (const number of referencesOf(this.leak)[box.number] ?? []) {
        for (const line of this.lines.get(number) ?? []) near.add(line);
        const { from, to } = this.leak.graph.edges[number];
        const other = this.byNumber.get(from === box.number ? to : from);
        if (other) near.add(other.element);
      }
    } else {
      this.svg.removeAttribute("aria-activedescendant");
    }
    for (const element of this.near) element.classList.toggle("near", near.has(element));
    for (const element of near) element.classList.add("near");
    this.near = near;
    this.svg.classList.toggle("chosen", Boolean(box?.node));
    this.mark();
    this.onChange(box);
  }

  /** Highlights the objects of a type whose text matches, and returns their number. */
  find(letters, type) {
    this.searching = letters !== "" || type !== "";
    const { nodes } = this.leak.graph;
    const fits = (words, node) => words.includes(letters) && (!type || node?.type_name === type);
    // A box is found by the objects that it stands for too.
    const found = (box) => fits(box.words, box.node) ||
      box.hidden.some((number) => nodes[number] && fits(wordsOf(nodes[number]).toLowerCase(), nodes[number]));
    this.matches = this.searching ? this.boxes.filter(found) : [];
    this.svg.classList.toggle("searching", this.searching);
    this.mark();
    return this.matches.length;
  }

  /** Highlights matches and dims the rest, one part of the drawing per frame. */
  async mark() {
    const marking = this.marking = {};
    const matches = new Set(this.matches.map((box) => box.element));
    const dimmed = (element) => (this.chosen?.node && !this.near.has(element))
      || (this.searching && this.boxOf.has(element) && !matches.has(element));
    for (let start = 0; start < this.elements.length; start += MARKED) {
      if (start) await frame();
      if (this.marking !== marking) return;
      for (const element of this.elements.slice(start, start + MARKED)) {
        element.classList.toggle("match", matches.has(element));
        element.classList.toggle("dim", Boolean(dimmed(element)));
      }
    }
    this.onMark();
  }

  /** The match after the selected one. */
  nextMatch() {
    const next = this.matches.indexOf(this.chosen) + 1;
    return this.matches[next] ?? this.matches[0] ?? null;
  }

  /** The target of an arrow key: the box joined by a reference that lies most in that direction. */
  towards(key) {
    if (!this.chosen) return this.boxes[0] ?? null;
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
    const here = middle(this.chosen);
    let best = null;
    for (const box of this.linked(this.chosen)) {
      const { x, y } = middle(box);
      const ahead = (x - here.x) * dx + (y - here.y) * dy;
      const aside = Math.abs((x - here.x) * dy) + Math.abs((y - here.y) * dx);
      const cost = Math.hypot(ahead, aside) * (1 + aside / Math.max(ahead, 1));
      // The next column is to the right, however far up or down its boxes are.
      const inReach = ahead > 1 && (dx !== 0 || aside < 4 * ahead);
      if (inReach && (!best || cost < best.cost)) best = { box, cost };
    }
    return best?.box ?? null;
  }

  /** The boxes joined to this one by references. A box of objects not drawn is joined to all. */
  linked(box) {
    if (!box.node) return this.boxes;
    const ends = (referencesOf(this.leak)[box.number] ?? []).flatMap((number) => {
      const { from, to } = this.leak.graph.edges[number];
      return [this.byNumber.get(from), this.byNumber.get(to)];
    });
    return [...ends.filter(Boolean), ...this.boxes.filter((other) => !other.node)];
  }
}

/** The centre of a box in the drawing. */
function middle(box) {
  box.middle ??= (({ x, y, width, height }) => ({
    x: x.baseVal.value + width.baseVal.value / 2,
    y: y.baseVal.value + height.baseVal.value / 2,
  }))(box.element.querySelector("rect"));
  return box.middle;
}

/** What an object is found by. */
function wordsOf(node) {
  return `${node.label}\n${node.type_name}\n${place(node.location)}`;
}

/** `file:line`, or an empty string. */
function place(location) {
  if (!location) return "";
  return location.line ? `${location.file}:${location.line}` : location.file;
}
