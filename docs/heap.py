"""Draws ``docs/heap.png``, the heap's page in ``docs/live-memory.md``, with PyTorch and Chromium.

The program is a small transformer that keeps the loss of each step, some with ``retain_graph``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import types
from pathlib import Path

import torch
from playwright.sync_api import sync_playwright

import cyclescope

WIDTH, HEIGHT = 1100, 700
PROGRAM = """
class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
        self.embed = torch.nn.Embedding(4000, 256)
        self.encoder = torch.nn.TransformerEncoder(layer, 4)
        self.head = torch.nn.Linear(256, 4000)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


model = Transformer()
optimizer = torch.optim.AdamW(model.parameters())
history = []
for step in range(8):
    tokens = torch.randint(0, 4000, (4, 32))
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward(retain_graph=step % 4 == 0)
    optimizer.step()
    history.append(loss)
del tokens, loss
"""

train = types.ModuleType("train")
train.torch = torch  # type: ignore[attr-defined]
sys.modules["train"] = train
exec(PROGRAM, train.__dict__)

with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
    file = Path(folder) / "heap.html"
    file.write_text(cyclescope.heap().to_html(), encoding="utf-8")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    page.goto(file.as_uri())
    page.locator("figure.owners").screenshot(path=Path(__file__).with_suffix(".png"))
    browser.close()
