
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
