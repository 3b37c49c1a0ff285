
// Selection, search and filter in a drawing.

/** The references of each object, by its index in the leak's graph; computed once per leak. */
function referencesOf(leak) {
  leak.references ??= leak.graph.edges.reduce((all, edge, number) => {
    for (const end of new Set([edge.from, edge.to])) (all[end] ??= []).push(number);
    return all;
  }, []);
  return leak.references;
}

/** The numbers of a list with ranges, such as `1 4-90 7`. */
function numbersOf(runs) {
  return (runs ?? "").split(" ").filter(Boolean).flatMap((run) => {
    const [first, last = first] = run.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  });
}

class Selection {
  /** Calls `onChange` with the selected box, or null. */
  constructor(svg, leak, onChange) {
    this.svg = svg;
    this.leak = leak;
    this.onChange = onChange;
    this.chosen = null;
    this.matches = [];
    this.searching = false;
    this.boxes = [...svg.querySelectorAll(".node")].map((element, place) => this.box(element, place));
    this.boxOf = new Map(this.boxes.map((box) => [box.element, box]));
    /** The box of each object, or the one that stands for it. */
    this.byNumber = new Map();
    for (const box of this.boxes) for (const number of box.hidden) this.byNumber.set(number, box);
    for (const box of this.boxes) if (box.node) this.byNumber.set(box.number, box);
    this.lines = [...svg.querySelectorAll("[data-ends]")].map((element) => {
      const ends = element.dataset.ends.split(" ").map((place) => this.boxes[place]);
      for (const box of ends) for (const other of ends) if (other !== box) box.linked.add(other);
      return { element, ends };
    });
  }

  box(element, place) {
    element.id ||= `${this.svg.id}-box-${place}`;
    const number = element.dataset.node === undefined ? null : Number(element.dataset.node);
    const node = this.leak.graph.nodes[number];
    const lines = [...element.querySelectorAll("text")].map((text) => text.textContent);
    const words = node ? `${wordsOf(node)}\n${this.namesOf(number)}` : lines.join("\n");
    // Screen readers announce its name.
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", shortened(node?.label ?? lines.join(", "), 200));
    return { element, number, node, lines, hidden: numbersOf(element.dataset.more), words: words.toLowerCase(), linked: new Set() };
  }

  /** The references that an object has, as the drawing labels them. */
  namesOf(number) {
    const { edges } = this.leak.graph;
    const own = (referencesOf(this.leak)[number] ?? []).filter((edge) => edges[edge].from === number);
    return own.map((edge) => edges[edge].name).join("\n");
  }

  /** The box that contains an element, or null. */
  at(element) {
    return this.boxOf.get(element.closest(".node")) ?? null;
  }

  /** The box of an object that it shows by itself, or null. */
  alone(number) {
    const box = this.byNumber.get(number);
    return box?.number === number ? box : null;
  }

  choose(box) {
    this.chosen?.element.classList.remove("selected");
    this.chosen = box;
    box?.element.classList.add("selected");
    if (box) this.svg.setAttribute("aria-activedescendant", box.element.id);
    else this.svg.removeAttribute("aria-activedescendant");
    this.svg.classList.toggle("chosen", Boolean(box));
    this.mark();
    this.onChange(box);
  }

  /** Highlights the objects of a type whose text matches, and returns their number. */
  find(letters, type) {
    const { nodes } = this.leak.graph;
    const fits = (words, node) => words.includes(letters) && (!type || node?.type_name === type);
    // A box is found by the objects that it stands for too.
    const found = (box) => fits(box.words, box.node) ||
      box.hidden.some((number) => nodes[number] && fits(wordsOf(nodes[number]).toLowerCase(), nodes[number]));
    this.matches = letters || type ? this.boxes.filter(found) : [];
    // Where nothing is found, the drawing stays as it is.
    this.searching = this.matches.length > 0;
    this.asked = Boolean(letters || type);
    this.mark();
    return this.matches.length;
  }

  /** Highlights the matches and what is joined to the selection, and dims the rest. */
  mark() {
    const { chosen } = this;
    const matches = new Set(this.matches);
    for (const box of this.boxes) {
      const near = Boolean(chosen) && (box === chosen || chosen.linked.has(box));
      box.element.classList.toggle("near", near);
      box.element.classList.toggle("match", matches.has(box));
      box.element.classList.toggle("dim", (Boolean(chosen) && !near) || (this.searching && !matches.has(box)));
    }
    for (const { element, ends } of this.lines) {
      const near = ends.includes(chosen);
      element.classList.toggle("near", near);
      element.classList.toggle("dim", Boolean(chosen) && !near);
    }
  }

  /** The match after the selected one; without a search, the box after it. */
  nextMatch() {
    const boxes = this.asked ? this.matches : this.boxes;
    return boxes[boxes.indexOf(this.chosen) + 1] ?? boxes[0] ?? null;
  }

  /** The target of an arrow key: the box joined by a reference that lies most in that direction. */
  towards(key) {
    if (!this.chosen) return this.boxes[0] ?? null;
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
    const here = middle(this.chosen);
    let best = null;
    for (const box of this.beside(this.chosen)) {
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

  /** The boxes joined to this one. A box that no line joins to another is beside all. */
  beside(box) {
    if (!box.linked.size) return this.boxes;
    return this.boxes.filter((other) => box.linked.has(other) || !other.linked.size);
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
