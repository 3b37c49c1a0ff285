
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

/** The drawing that a template holds. */
async function drawingOf(template) {
  const holder = document.createElement("div");
  holder.innerHTML = await unpacked(template);
  const svg = holder.firstElementChild;
  svg.remove();
  return svg;
}
