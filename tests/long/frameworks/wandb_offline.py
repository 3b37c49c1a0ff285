"""Scalars through the loggers that Lightning and Transformers have for Weights & Biases, offline.

``make test-frameworks`` installs it and runs this, as it is too large for every test run.
"""

from __future__ import annotations

import gc
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import WandbLogger
from wandb.proto import wandb_internal_pb2

from cyclescope.integrations.lightning import TensorCycles
from cyclescope.integrations.transformers import TensorCyclesCallback
from support.training import STEPS, lightning_module, transformers_trainer

BLOCK = 2**15
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
HELD = 2 * 4 * 64 * 4
"""Two batches of four rows of 64 floats."""


def with_lightning(folder: Path) -> None:
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=WandbLogger(save_dir=folder, offline=True, project="tiny"),
        callbacks=[TensorCycles(every=2)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    data: Any = torch.utils.data.DataLoader(torch.randn(STEPS * 4, 64), batch_size=4)  # type: ignore[arg-type]
    trainer.fit(lightning_module(leaky=True), data)


def with_transformers(folder: Path) -> None:
    trainer = transformers_trainer(folder, leaky=True, report_to="wandb")
    trainer.add_callback(TensorCyclesCallback(trainer, every=2))
    trainer.train()


def logged_by(train: str, folder: Path) -> list[dict[str, Any]]:
    """The rows with a scalar of ours that a training leaves, in a process of its own.

    Its end is what wandb's service waits for to complete the file.
    """
    settings = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(folder)}
    settings |= {"CYCLESCOPE_DEVICES": "any", "CYCLESCOPE_REPORT_DIR": str(folder / "pages")}
    command = [sys.executable, __file__, train, str(folder)]
    subprocess.run(command, env=os.environ | settings, check=True)
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    rows = []
    for content in records(file.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(content)
        if record.WhichOneof("record_type") == "history":
            row = {
                item.key or ".".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            if any("cyclescope" in name for name in row):
                rows.append(row)
    return rows


def records(content: bytes) -> Iterator[bytes]:
    """What is in a run's file, which has the format of LevelDB's log after seven bytes of its own.

    Blocks of 32 KiB hold parts, each with a checksum, a length and the place of the part in its
    record; a part does not begin in the last six bytes of a block.
    """
    assert content.startswith(b":W&B")
    at, record = 7, b""
    while at + 7 <= len(content):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        length, place = struct.unpack_from("<HB", content, at + 4)
        part = content[at + 7 : at + 7 + length]
        record = part if place in (FULL, FIRST) else record + part
        if place in (FULL, LAST):
            yield record
        at += 7 + length


def test_lightnings_logger(tmp_path: Path) -> None:
    rows = logged_by("with_lightning", tmp_path)
    assert [(row["trainer/global_step"], row["cyclescope/bytes_held"]) for row in rows] == [
        (step, HELD) for step in (2, 4, 6)
    ]
    assert [row["cyclescope/distinct_leaks"] for row in rows] == [1, 1, 1]


def test_the_logger_of_transformers(tmp_path: Path) -> None:
    rows = logged_by("with_transformers", tmp_path)
    assert [row["train/global_step"] for row in rows] == [2, 4, 6]
    held = [value for row in rows for name, value in row.items() if name.endswith("bytes_held")]
    assert held[1:] == [HELD, HELD]


if __name__ == "__main__":
    gc.disable()
    {"with_lightning": with_lightning, "with_transformers": with_transformers}[sys.argv[1]](
        Path(sys.argv[2])
    )
