
// A drawing that answers to pointer and keyboard.

class Figure {
  constructor(element, leak) {
    this.element = element;
    this.leak = leak;
    this.panel = element.querySelector(".facts-of-object");
    this.view = element.querySelector(".view");
    this.input = element.querySelector("input");
    this.select = element.querySelector("select");
    this.camera = new Camera(this.view);
    this.drawings = new Map();
    element.classList.add("live");
    element.querySelector(".tools").hidden = false;
    this.panel.hidden = false;
    this.listTypes();
    this.listen();
    this.show("leak");
    new ResizeObserver(() => this.camera.touched || this.camera.fit()).observe(this.view);
  }

  /** The types of the objects, the commonest first. */
  listTypes() {
    const counts = new Map();
    for (const { type_name } of this.leak.graph.nodes) counts.set(type_name, (counts.get(type_name) ?? 0) + 1);
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
      if (event.key === "Enter") this.choose(this.selection.nextMatch());
      if (event.key === "Escape") this.clear();
    });
    this.view.addEventListener("pointerover", (event) => {
      const box = this.selection.at(event.target);
      if (box) nameInFull(box);
      this.describe(box ?? this.selection.chosen);
    });
    this.view.addEventListener("pointerleave", () => this.describe(this.selection.chosen));
    this.view.addEventListener("click", (event) => {
      const box = this.selection.at(event.target);
      if (!this.camera.dragged) this.selection.choose(box === this.selection.chosen ? null : box);
    });
  }

  /** Shows the drawing of this detail, made when it is first asked for. */
  show(name) {
    if (!this.drawings.has(name)) this.drawings.set(name, this.open(name));
    ({ svg: this.svg, selection: this.selection } = this.drawings.get(name));
    this.view.replaceChildren(this.svg);
    for (const button of this.element.querySelectorAll("button[data-view]")) {
      button.setAttribute("aria-pressed", String(button.dataset.view === name));
    }
    this.name = name;
    this.camera.use(this.svg);
    this.selection.choose(null);
    this.find();
  }

  open(name) {
    const asleep = this.element.querySelector(`template[data-view="${name}"]`);
    const svg = asleep ? document.importNode(asleep.content, true).querySelector("svg")
      : this.view.querySelector("svg");
    svg.tabIndex = 0;
    svg.setAttribute("role", "application");
    svg.setAttribute("aria-label", "Drawing of the leak. Arrow keys go along references.");
    const selection = new Selection(svg, this.leak, (box) => this.describe(box));
    for (const { element, words, node } of selection.boxes) {
      element.setAttribute("role", "img");
      element.setAttribute("aria-label", shortened(node?.label ?? words, 200));
    }
    svg.addEventListener("keydown", (event) => this.key(event));
    return { svg, selection };
  }

  describe(box) {
    if (this.described === box && box) return;
    this.described = box;
    const drawAll = this.name !== "all" && this.element.querySelector('template[data-view="all"]')
      ? () => this.show("all") : null;
    describe(this.panel, this.leak, box, { choose: (number) => this.chooseNumber(number), drawAll });
  }

  choose(box) {
    if (!box) return;
    this.selection.choose(box);
    this.camera.reveal(middle(box));
  }

  /** Chooses an object wherever it is drawn. */
  chooseNumber(number) {
    const has = () => this.selection.byNumber.get(number);
    if (!has() && this.element.querySelector('template[data-view="all"]')) this.show("all");
    this.choose(has());
    this.svg.focus({ preventScroll: true });
  }

  find() {
    const letters = this.input.value.trim().toLowerCase();
    const count = this.selection.find(letters, this.select.value);
    const said = letters || this.select.value ? `${count} of ${this.selection.boxes.length}` : "";
    this.element.querySelector("output").textContent = said;
  }

  clear() {
    this.input.value = this.select.value = "";
    this.find();
    this.selection.choose(null);
  }

  key(event) {
    const zooms = { "+": "in", "=": "in", "-": "out", "0": "fit" };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) this.choose(this.selection.towards(event.key));
    else if (event.key in zooms) this.camera.command(zooms[event.key]);
    else if (event.key === "n") this.choose(this.selection.nextMatch());
    else if (event.key === "Escape") this.clear();
    else return;
    event.preventDefault();
  }
}

/** Gives a box of a drawing that was asleep its hover text. */
function nameInFull({ element, node }) {
  if (!node || element.querySelector("title")) return;
  const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
  title.textContent = shortened([node.label, `type ${node.type_name}`, place(node.location)].join("\n"), 1000);
  element.prepend(title);
}
