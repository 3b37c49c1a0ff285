
// Save.

function save(text, name, type) {
  const anchor = make("a");
  anchor.href = URL.createObjectURL(new Blob([text], { type }));
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

/** The visible drawing as a standalone image: complete, with its style, without a selection. */
async function standAlone(figure) {
  const asleep = figure.asleep(figure.name);
  const image = asleep ? await unpacked(asleep) : cleaned(figure.svg);
  const style = document.getElementById("drawing-style").textContent;
  return image.replace(/<svg [^>]*>/, (start) => `${start}\n<style>${style}</style>`);
}

/** The initial drawing, without the changes made by the page. */
function cleaned(svg) {
  const image = svg.cloneNode(true);
  image.setAttribute("class", "leak-drawing");
  for (const name of ["style", "tabindex", "role", "aria-activedescendant"]) image.removeAttribute(name);
  for (const element of image.querySelectorAll("[class]")) {
    element.classList.remove("near", "selected", "match", "dim", "opened");
  }
  return new XMLSerializer().serializeToString(image);
}

/** A safe file name for the leak, whatever its signature contains. */
function fileName(leak, extension) {
  const signature = (leak?.signature ?? "leaks").replace(/[^0-9A-Za-z]/g, "").slice(0, 40);
  return `cyclescope-${signature || "leak"}.${extension}`;
}
