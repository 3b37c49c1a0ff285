
// Where a line is opened: in an editor on this machine, or at an address with {file} and {line} in it.
const EDITORS = {
  "VS Code": "vscode://file/{file}:{line}",
  PyCharm: "pycharm://open?file={file}&line={line}",
};
const OTHER = "Other address";
const ALLOWED = /^(https?|vscode|vscode-insiders|cursor|zed|pycharm|idea):\/\//;

/** Has all links open lines at this address. */
function setEditor(address) {
  for (const link of document.querySelectorAll("a.open")) {
    const { file, line } = link.dataset;
    link.href = address.replace("{file}", encodeURI(file)).replace("{line}", encodeURIComponent(line));
  }
  for (const select of document.querySelectorAll("[data-editor]")) {
    select.value = Object.keys(EDITORS).find((name) => EDITORS[name] === address) ?? OTHER;
  }
}

function chooseEditor(select) {
  const address = EDITORS[select.value] ?? prompt("Address, with {file} and {line} in it", EDITORS["VS Code"]);
  if (ALLOWED.test(address ?? "")) {
    setEditor(address);
    stored("cyclescope-editor", address);
  } else setEditor(stored("cyclescope-editor") ?? EDITORS["VS Code"]);
}

for (const select of document.querySelectorAll("[data-editor]")) {
  select.append(...[...Object.keys(EDITORS), OTHER].map((name) => make("option", name)));
  select.addEventListener("change", () => chooseEditor(select));
}
const editor = stored("cyclescope-editor");
setEditor(ALLOWED.test(editor ?? "") ? editor : EDITORS["VS Code"]);

// The sandbox of a frame opens no other program.
if (parent !== window) {
  for (const control of document.querySelectorAll("a.open, [data-editor]")) control.hidden = true;
}
