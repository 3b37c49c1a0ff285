
// An interactive drawing: pointer and keyboard.

/** Where the drawing would be smaller than this, it is one column. */
const SMALL = 0.8;

/** Aspect ratio from which the facts panel goes below the drawing. */
const FLAT = 3.4;

/** Width of the facts panel beside a drawing, in pixels. */
const FACTS = 258;

class Figure {
  constructor(element, leak) {
    this.element = element;
    this.leak = leak;
    this.panel = element.querySelector(".facts-of-object");
    this.view = element.querySelector(".view");
    this.input = element.querySelector("input");
    this.select = element.querySelector("select");
    this.original = this.view.querySelector("svg");
    this.camera = new Camera(this.view);
    element.classList.add("live");
    element.querySelector(".tools").hidden = false;
    this.panel.hidden = false;
    this.listTypes();
    this.listen();
    this.show("leak");
    new ResizeObserver(() => this.resize()).observe(this.view);
  }

  /** The name of the drawing of the leak that is legible in this width. */
  get legible() {
    const { first, width } = this.element.dataset;
    const best = this.element.clientWidth / Number(width) < SMALL ? "narrow" : "leak";
    return this.asleep(best) ? best : first;
  }

  /** Shows on paper the drawing that the page came with, if it is the narrower one; `false` takes it back. */
  print(onPaper) {
    if (this.drawn !== "leak" || this.element.dataset.first === "leak") return;
    this.view.replaceChildren(onPaper ? this.original : this.svg);
  }

  resize() {
    if (!this.svg) return;
    this.arrange();
    if (this.name === "leak" && this.drawn !== this.legible) this.show("leak");
    else this.camera.resize();
  }

  /** Puts the facts panel below a flat drawing, and below one that would be too small beside it. */
  arrange() {
    const { width, height } = this.svg.viewBox.baseVal;
    const least = this.drawn === "leak" ? SMALL : WHOLE;
    const isSmall = (this.element.clientWidth - FACTS) / width < least;
    this.element.classList.toggle("flat", isSmall || width > FLAT * height);
  }

  /** The types of the objects, most common first. */
  listTypes() {
    const { nodes, omitted } = this.leak.graph;
    if (omitted) this.select.options[0].textContent = `All types, of ${nodes.length.toLocaleString("en")} objects`;
    const counts = new Map();
    for (const { type_name } of nodes) counts.set(type_name, (counts.get(type_name) ?? 0) + 1);
    for (const [type, count] of [...counts].sort((a, b) => b[1] - a[1]).slice(0, 200)) {
      const option = make("option", `${shortened(type, 60)} (${count})`);
      option.value = type;
      this.select.append(option);
    }
  }

  listen() {
    for (const button of this.element.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => this.camera.command(button.dataset.zoom));
    }
    for (const button of this.element.querySelectorAll("button[data-view]")) {
      button.addEventListener("click", () => this.show(button.dataset.view));
    }
    this.input.addEventListener("input", () => this.find());
    this.select.addEventListener("change", () => this.find());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.selection.asked) this.choose(this.selection.nextMatch());
      if (event.key !== "Escape") return;
      this.clear();
      this.svg.focus({ preventScroll: true });
    });
    this.view.addEventListener("pointerover", (event) => this.hover(this.selection.at(event.target)));
    this.view.addEventListener("pointerleave", () => this.describe(this.selection.chosen));
    this.view.addEventListener("click", (event) => {
      const box = this.selection.at(event.target);
      if (!this.camera.dragged) this.selection.choose(box === this.selection.chosen ? null : box);
    });
  }

  hover(box) {
    const told = box ?? this.selection.chosen;
    if (box) nameInFull(box);
    if (told !== this.described) this.describe(told);
  }

  /** Shows a drawing: that of a button, or one that expands a box. Resolves to true once it is there. */
  async show(name) {
    const wanted = this.wanted = {};
    const drawn = name === "leak" ? this.legible : name;
    const drawing = await this.open(drawn);
    if (this.wanted !== wanted) return false;
    const view = name.startsWith("all") ? "all" : name;
    for (const button of this.element.querySelectorAll("button[data-view]")) {
      button.setAttribute("aria-pressed", String(button.dataset.view === view));
    }
    Object.assign(this, { name, drawn, ...drawing });
    this.arrange();
    // Position first, then content: text is laid out for its final size.
    this.camera.use(this.svg, drawn === "narrow", view === "all" ? WHOLE : READABLE);
    this.view.replaceChildren(this.svg);
    this.selection.choose(null);
    this.find();
    return true;
  }

  /** The template of the drawing with this name; null for the initial drawing. */
  asleep(name) {
    return this.element.querySelector(`template[data-view="${name}"]`);
  }

  /** The drawing with this name. */
  async open(name) {
    const asleep = this.asleep(name);
    if (!asleep && this.first) return this.first;
    const svg = asleep ? await drawingOf(asleep) : this.original;
    svg.tabIndex = 0;
    svg.setAttribute("role", "application");
    svg.setAttribute("aria-label", "Drawing of the leak. Arrow keys follow references.");
    svg.addEventListener("keydown", (event) => this.key(event));
    const selection = new Selection(svg, this.leak, (box) => this.describe(box));
    const drawing = { svg, selection };
    if (!asleep) this.first = drawing;
    return drawing;
  }

  /** The name of the drawing that expands a box, or null. */
  opening(box) {
    const { opens } = box.element.dataset;
    if (opens && opens !== this.name && this.asleep(opens)) return opens;
    return box.hidden.length && !this.name.startsWith("all") && this.asleep("all") ? "all" : null;
  }

  /** Expands a box in place and highlights its objects, or what stands for them there. */
  async unfold(box) {
    const name = this.opening(box);
    if (!name || !(await this.show(name))) return;
    const opened = box.hidden.map((number) => this.selection.byNumber.get(number)).filter(Boolean);
    for (const { element } of opened) element.classList.add("opened");
    this.camera.fit(OVERVIEW);
    const first = opened.find(({ node }) => node) ?? opened[0];
    if (first) this.camera.reveal(middle(first));
    this.svg.focus({ preventScroll: true });
  }

  describe(box) {
    if (this.described === box && box) return;
    this.described = box;
    const opening = box?.hidden.length && !box.node ? this.opening(box) : null;
    const unfold = opening ? () => this.unfold(box) : null;
    const drawAll = opening && opening !== "all" ? () => this.show("all") : null;
    describe(this.panel, this.leak, box, { choose: (number) => this.chooseNumber(number), unfold, drawAll });
  }

  choose(box) {
    if (!box) return;
    this.selection.choose(box);
    this.camera.reveal(middle(box));
  }

  /** Selects an object in whichever drawing shows it, or the box that stands for it, and tells its facts. */
  async chooseNumber(number) {
    const box = this.selection.byNumber.get(number);
    if (!this.selection.alone(number)) {
      const opening = box ? this.opening(box) : this.name !== "all" && this.asleep("all") && "all";
      if (opening) await this.show(opening);
    }
    this.choose(this.selection.byNumber.get(number));
    if (!this.selection.alone(number)) this.describe({ node: this.leak.graph.nodes[number], number, hidden: [] });
    this.svg.focus({ preventScroll: true });
  }

  find() {
    const letters = this.input.value.trim().toLowerCase();
    const count = this.selection.find(letters, this.select.value);
    const found = count ? `${count} of ${this.selection.boxes.length} boxes` : "no match";
    const said = letters || this.select.value ? found : "";
    this.element.querySelector("output").textContent = said;
  }

  clear() {
    this.input.value = this.select.value = "";
    this.find();
    this.selection.choose(null);
  }

  /** Clears the selection and the search; if both are empty, collapses expanded boxes. */
  back() {
    const idle = !this.selection.chosen && !this.input.value && !this.select.value;
    const outer = { fold: "leak", all: "all" }[this.name.split("-")[0]];
    if (idle && outer && outer !== this.name) this.show(outer).then(() => this.svg.focus({ preventScroll: true }));
    else this.clear();
  }

  key(event) {
    const zooms = { "+": "in", "=": "in", "-": "out", "0": "fit" };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) this.choose(this.selection.towards(event.key));
    else if (event.key in zooms) this.camera.command(zooms[event.key]);
    else if (event.key === "n") this.choose(this.selection.nextMatch());
    else if (event.key === "Enter" && this.selection.chosen) this.unfold(this.selection.chosen);
    else if (event.key === "Escape") this.back();
    else return;
    event.preventDefault();
  }
}

/** Sets the tooltip of a box in a decompressed drawing. */
function nameInFull({ element, node }) {
  if (!node || element.querySelector("title")) return;
  const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
  title.textContent = shortened([node.label, `type ${node.type_name}`, place(node.location)].join("\n"), 1000);
  element.prepend(title);
}
