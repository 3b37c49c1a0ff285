
// The facts panel beside the drawing.

/** Maximum number of references, or of objects of a folded box, to list. */
const LISTED = 12;

/** A button with the name of an object, which selects it. */
function link(leak, number, choose) {
  const button = make("button", leak.graph.nodes[number]?.label ?? "?");
  button.type = "button";
  button.addEventListener("click", () => choose(number));
  return button;
}

/** Writes the facts of a box into the panel, or a hint if no box is selected. */
function describe(panel, leak, box, actions) {
  if (!box) {
    panel.replaceChildren(make("p", IS_TOUCHED ? "Tap an object to see its facts and references." :
      "Point at an object to see its facts; click it to see its references. Drag to move, Ctrl + wheel to zoom."));
    return;
  }
  panel.replaceChildren(...(box.node ? ofObject(leak, box, actions.choose) : ofSeveral(leak, box, actions)));
  panel.scrollTop = 0;
}

function ofObject(leak, { node, number, hidden }, choose) {
  const list = make("dl");
  const add = (term, ...values) => list.append(make("dt", term), ...values.map((value) =>
    typeof value === "string" ? make("dd", value) : make("dd", "", value)));
  if (node.type_name !== node.label) add("Type", node.type_name);
  if (node.location) add("Where", place(node.location));
  const buffer = leak.buffers[node.buffer];
  if (buffer) add("Holds", `${buffer.bytes.toLocaleString("en")} bytes on ${buffer.device}`);
  for (const [name, value] of node.details) add(name, value);
  for (const [title, mine, theirs] of [["Refers to", "from", "to"], ["Referred to by", "to", "from"]]) {
    const edges = (referencesOf(leak)[number] ?? []).map((index) => leak.graph.edges[index])
      .filter((edge) => edge[mine] === number);
    if (!edges.length) continue;
    add(title, ...edges.slice(0, LISTED).map((edge) => {
      const line = make("span");
      const name = make("b", edge.name);
      const other = link(leak, edge[theirs], choose);
      line.append(...(mine === "from" ? [name, " → ", other] : [other, " ", name]));
      return line;
    }));
    if (edges.length > LISTED) add("", `and ${edges.length - LISTED} more`);
  }
  if (hidden.length) {
    const others = hidden.slice(0, LISTED).map((other) => link(leak, other, choose));
    add(`And ${hidden.length} like it`, ...others, ...(hidden.length > LISTED ? ["…"] : []));
  }
  return [make("h3", node.label), list];
}

/** Maximum number of objects that an expanded box draws; as in subgraph.rs. */
const OPENED = 20;

function ofSeveral(leak, { element, lines, hidden }, { choose, unfold, drawAll }) {
  const parts = [make("h3", lines[0]), ...lines.slice(1).map((line) => make("p", line))];
  if (element.classList.contains("plumbing")) {
    parts.push(make("p", "The interpreter's own: the reference leads through it."));
    return parts;
  }
  const act = (text, listener) => {
    const button = make("button", text);
    button.type = "button";
    button.className = "action";
    button.addEventListener("click", listener);
    parts.push(button);
  };
  if (!hidden.length) parts.push(make("p", "The report counts these objects without describing them."));
  if (unfold) act(hidden.length > OPENED ? `Draw ${OPENED} of these` : "Draw these", unfold);
  if (drawAll) act("Draw everything", drawAll);
  const items = hidden.slice(0, LISTED).map((number) => make("li", "", link(leak, number, choose)));
  if (hidden.length > LISTED) items.push(make("li", `and ${hidden.length - LISTED} more`));
  parts.push(make("ul", "", ...items));
  return parts;
}

/** The objects and references of a leak as a table. */
function rawTable(leak) {
  const [ROWS, TOGETHER] = [500, 25];
  const { nodes, edges } = leak.graph;
  const row = (kind, ...texts) => make("tr", "", ...texts.map((text) => make(kind, text)));
  const table = make("table", "", make("thead", "", row("th", "Number", "Object", "Type", "Refers to")));
  nodes.slice(0, ROWS).forEach((node, number) => {
    const out = (referencesOf(leak)[number] ?? []).map((index) => edges[index])
      .filter((edge) => edge.from === number);
    const names = out.slice(0, 50).map((edge) => `${edge.name} → ${edge.to}`).join("; ");
    // The browser lays out only the visible groups of rows.
    if (number % TOGETHER === 0) table.append(make("tbody"));
    table.lastElementChild.append(row("td", String(number), node.label, node.type_name, names));
  });
  const more = nodes.length > ROWS ? `${nodes.length - ROWS} further objects are in the JSON.` : "";
  const wide = make("div", "", table, make("p", more));
  wide.className = "wide";
  wide.tabIndex = 0;
  wide.setAttribute("role", "group");
  wide.setAttribute("aria-label", "All objects and references");
  return wide;
}
