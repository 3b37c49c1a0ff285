
// Copying and saving.

/** Puts text on the clipboard, also where a page in a frame may not use the newer way. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function save(text, name, type) {
  const anchor = make("a");
  anchor.href = URL.createObjectURL(new Blob([text], { type }));
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

/** The drawing that is shown as an image that stands alone: whole, with its style, with nothing chosen. */
async function standAlone(figure) {
  const asleep = figure.asleep(figure.name);
  const image = asleep ? await unpacked(asleep) : cleaned(figure.svg);
  const style = document.getElementById("drawing-style").textContent;
  return image.replace(/<svg [^>]*>/, (start) => `${start}\n<style>${style}</style>`);
}

/** The drawing that the page came with, without what the page has made of it. */
function cleaned(svg) {
  const image = svg.cloneNode(true);
  image.setAttribute("class", "leak-drawing");
  for (const name of ["style", "tabindex", "role", "aria-activedescendant"]) image.removeAttribute(name);
  for (const element of image.querySelectorAll("[class]")) {
    element.classList.remove("near", "selected", "match", "dim");
  }
  return new XMLSerializer().serializeToString(image);
}

/** A file name of the leak's own, whatever the report says its signature is. */
function fileName(leak, extension) {
  const signature = (leak?.signature ?? "leaks").replace(/[^0-9A-Za-z]/g, "").slice(0, 40);
  return `cyclescope-${signature || "leak"}.${extension}`;
}
