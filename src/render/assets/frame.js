// In the notebook, beside a page's frame: tells the page the notebook's theme, and gives the frame the page's height.
// It touches nothing but the frames of cyclescope's pages.
(() => {
  if (window.cyclescopeFrames) return;
  window.cyclescopeFrames = true;
  const LEAST = 240;
  const MOST = 1200;
  const frames = () => [...document.querySelectorAll("iframe.cyclescope")];
  const theme = () => {
    // JupyterLab and Notebook 7; VS Code; Colab.
    const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
    if (jpThemeLight) return jpThemeLight === "false" ? "dark" : "light";
    const kind = vscodeThemeKind ?? [...document.body.classList].find((name) => name.startsWith("vscode-")) ??
      document.documentElement.getAttribute("theme");
    if (!kind) return "";
    return /light/.test(kind) ? "light" : /dark|contrast/.test(kind) ? "dark" : "";
  };
  const tell = (frame) => frame.contentWindow?.postMessage({ cyclescope: "theme", theme: theme() }, "*");
  addEventListener("message", ({ source, data }) => {
    const frame = data?.cyclescope === "size" && frames().find(({ contentWindow }) => contentWindow === source);
    if (!frame) return;
    const height = Math.ceil(Number(data.height));
    if (height > 0) frame.height = Math.min(Math.max(height, LEAST), MOST);
    tell(frame);
  });
  const changed = new MutationObserver(() => frames().forEach(tell));
  for (const element of [document.documentElement, document.body]) changed.observe(element, { attributes: true });
})();
