"""Draws the pictures of ``docs/beside-others.md``: one leak as several tools show it.

Each tool really runs, on ``fixtures/awaitable_leak.py`` with a tensor of 64 MiB in host memory:

- cyclescope's drawing of the leak;
- PyTorch's ``torch.utils.viz._cycles``: its observer of garbage and its graph, in which tensors in
  host memory count, since it knows CUDA tensors only otherwise;
- objgraph's ``show_backrefs`` of the tensor, while a variable holds its owner, since it collects
  garbage first;
- memray's statistics of the run, the parts on the peak and on where memory was allocated.

Each has a process of its own: ``python docs/beside.py``, or with the name of one of them. It takes
PyTorch, Graphviz, Chromium with Playwright, and ``pip install memray objgraph``.
"""

from __future__ import annotations

import gc
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
PICTURES = ROOT / "docs"
WIDTH = 900
PROGRAM = "import awaitable_leak\n\nawaitable_leak.leak('cpu', 64)\n"
SECONDS = 120


def main(names: list[str]) -> None:
    """Write the picture of a tool, or of all."""
    if len(names) != 1:
        for name in names or DRAW:
            subprocess.run([sys.executable, __file__, name], check=True)
        return
    sys.path[:0] = [str(FIXTURES), str(ROOT / "python")]
    gc.collect()
    gc.disable()
    DRAW[names[0]]()


def cyclescope_s() -> None:
    import awaitable_leak
    import cyclescope

    awaitable_leak.leak("cpu", 64)
    report = cyclescope.find_tensor_cycles(devices="any")
    write("cyclescope", report.leaks[0].to_svg())


def pytorch_s() -> None:
    import torch
    from torch.utils.viz import _cycles

    import awaitable_leak

    graphs: list[str] = []

    def is_tensor(each: object) -> bool:
        return type(each) is torch.Tensor

    def on_garbage(garbage: list[object]) -> None:
        if any(map(is_tensor, garbage)):
            nodes = _cycles.create_graph(garbage, context=lambda each: None, filter=is_tensor)
            graphs.append(_cycles.to_dot(nodes))

    remove = _cycles.observe_garbage(on_garbage)
    awaitable_leak.leak("cpu", 64)
    gc.collect()
    gc.collect()
    remove()
    write("pytorch", drawn(graphs[0]))


def objgraph_s() -> None:
    import objgraph

    import awaitable_leak

    waiting = awaitable_leak.AwaitableTensor("cpu", 64)
    owner = awaitable_leak.AwaitableTensorWithViewCallBack(waiting, view_dim=4)
    owner.wait()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.dot"
        objgraph.show_backrefs(waiting._tensor, max_depth=5, too_many=6, filename=str(file))
        write("objgraph", drawn(file.read_text(encoding="utf-8")))


def memray_s() -> None:
    """A picture of what memray prints of a run of its own."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        program, log = Path(folder) / "train.py", Path(folder) / "train.bin"
        program.write_text(f"import sys\nsys.path.insert(0, {str(FIXTURES)!r})\n{PROGRAM}", "utf-8")
        memray = [sys.executable, "-m", "memray"]
        run = [*memray, "run", "--quiet", "-o", str(log), str(program)]
        subprocess.run(run, check=True, cwd=folder, timeout=SECONDS)
        stats = [*memray, "stats", "--num-largest", "3", str(log)]
        done = subprocess.run(
            stats, check=True, capture_output=True, text=True, cwd=folder, timeout=SECONDS
        )
        parts = done.stdout.replace(f"{folder}/", "").split("\n\n")
        told = [part for part in parts if "Peak" in part or "locations (by size)" in part]
        text = shown("\n\n".join(told)).replace("\t", "    ")
        # Few machines have a font for the pictographs before the headings.
        text = re.sub(r"^[^\x00-\x7f]+ ", "", text, flags=re.MULTILINE)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox"],
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 600})
        page.set_content("<pre style='margin: 0; padding: 12px'></pre>")
        page.locator("pre").evaluate("(element, text) => { element.textContent = text }", text)
        page.locator("pre").screenshot(path=PICTURES / "beside-memray.png")
        browser.close()


def drawn(graph: str) -> str:
    """A graph in the language of Graphviz as SVG."""
    done = subprocess.run(
        ["dot", "-Tsvg"], input=graph, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return done.stdout


def shown(text: str) -> str:
    """The text without this machine's folders and this run's addresses."""
    text = re.sub(r"/\S*/(site-packages|lib/python3\.\d+)/", "", text.replace(f"{ROOT}/", ""))
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", text)


def write(name: str, drawing: str) -> None:
    """Write a drawing."""
    (PICTURES / f"beside-{name}.svg").write_text(shown(drawing), encoding="utf-8")


DRAW = {
    "cyclescope": cyclescope_s,
    "pytorch": pytorch_s,
    "objgraph": objgraph_s,
    "memray": memray_s,
}

if __name__ == "__main__":
    main(sys.argv[1:])
