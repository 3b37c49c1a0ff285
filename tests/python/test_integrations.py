"""Real training of tiny models by Lightning and Transformers, and PyTorch's detector replaced."""

from __future__ import annotations

import gc
import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.viz import _cycles

import cyclescope
from support.training import STEPS, Metrics, lightning_module, transformers_trainer


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """With the first test, so that the heap of other files' tests stays small."""
    importlib.import_module("cyclescope.integrations.lightning")
    importlib.import_module("cyclescope.integrations.transformers")
    importlib.import_module("tensorboard.backend.event_processing.event_accumulator")


@pytest.fixture(autouse=True)
def loop_without_collections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CYCLESCOPE_REPORT_DIR", str(tmp_path / "pages"))
    monkeypatch.setenv("CYCLESCOPE_DEVICES", "any")
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    assert not [c for c in gc.callbacks if "cyclescope" in repr(c)], "a watch was left behind"


def train_with_lightning(folder: Path, *, every: int, leaky: bool) -> Any:
    """The callback that looked on."""
    from lightning.pytorch import Trainer
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

    from cyclescope.integrations.lightning import TensorCycles

    callback = TensorCycles(every=every)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=[TensorBoardLogger(folder, name="tb"), CSVLogger(folder, name="csv")],
        callbacks=[callback],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    data: Any = torch.utils.data.DataLoader(torch.randn(STEPS * 4, 64), batch_size=4)  # type: ignore[arg-type]
    trainer.fit(lightning_module(leaky=leaky), data)
    return callback


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard would show of the runs below a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, list[tuple[int, float]]] = {}
    for file in folder.rglob("events.out.tfevents.*"):
        events = EventAccumulator(str(file.parent)).Reload()
        for tag in events.Tags()["scalars"]:
            found[tag] = [(event.step, event.value) for event in events.Scalars(tag)]
    return found


def test_lightning_warns_and_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    callback = train_with_lightning(tmp_path, every=2, leaky=True)
    (warning,) = [r for r in caplog.records if r.name == "cyclescope"]
    assert "Metrics.summary → <lambda>" in warning.getMessage()
    assert warning.levelno == logging.WARNING
    assert callback.last_report is not None
    assert callback.last_report.step == STEPS
    # Two batches of four rows of 64 floats.
    assert scalars(tmp_path / "tb")["cyclescope/bytes_held"] == [
        (step, 2 * 4 * 64 * 4) for step in (2, 4, 6)
    ]
    assert "cyclescope/bytes_held" in next((tmp_path / "csv").rglob("metrics.csv")).read_text()


def test_lightning_without_leaks_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = train_with_lightning(tmp_path, every=3, leaky=False)
    assert not [r for r in caplog.records if r.name == "cyclescope"]
    assert callback.last_report is not None
    assert callback.last_report.report.yours == []


def test_transformers_warns_and_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from cyclescope.integrations.transformers import TensorCyclesCallback

    trainer = transformers_trainer(tmp_path, leaky=True)
    callback = TensorCyclesCallback(trainer, every=2)
    trainer.add_callback(callback)
    trainer.train()
    warnings = [r.getMessage() for r in caplog.records if r.name == "cyclescope"]
    assert len([text for text in warnings if "Metrics.summary → <lambda>" in text]) == 1
    assert callback.last_report is not None
    assert callback.last_report.step == STEPS
    logged = [entry for entry in trainer.state.log_history if "cyclescope/bytes_held" in entry]
    assert [entry["step"] for entry in logged] == [2, 4, 6]
    shown = next(values for tag, values in scalars(tmp_path).items() if "bytes_held" in tag)
    assert [step for step, _ in shown] == [2, 4, 6]


def test_transformers_without_leaks_and_without_logging(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from cyclescope.integrations.transformers import TensorCyclesCallback

    trainer = transformers_trainer(tmp_path, leaky=False)
    callback = TensorCyclesCallback(every=3)
    trainer.add_callback(callback)
    trainer.train()
    assert callback.last_report is not None
    assert callback.last_report.report.yours == []
    assert not [entry for entry in trainer.state.log_history if "cyclescope/bytes_held" in entry]


def test_the_callback_keeps_no_trainer_alive(tmp_path: Path) -> None:
    from cyclescope.integrations.transformers import TensorCyclesCallback

    trainer = transformers_trainer(tmp_path, leaky=False)
    callback = TensorCyclesCallback(trainer)
    assert not [value for value in vars(callback).values() if value is trainer]


def test_pytorchs_detector_is_replaced_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    originals = (_cycles.warn_tensor_cycles, _cycles.observe_tensor_cycles)
    pages: list[str] = []
    with cyclescope.patch_torch():
        # As torchtitan does when it is to debug garbage collection.
        from torch.utils.viz._cycles import observe_tensor_cycles, warn_tensor_cycles

        stop_warning = warn_tensor_cycles()  # type: ignore[no-untyped-call]
        stop_observing = observe_tensor_cycles(pages.append)  # type: ignore[no-untyped-call]
        Metrics(torch.zeros(1000))
        gc.collect()
        stop_warning()
        stop_observing()
    assert (_cycles.warn_tensor_cycles, _cycles.observe_tensor_cycles) == originals
    (page,) = pages
    assert page.startswith("<!DOCTYPE html>")
    assert any("Metrics.summary" in message for message in caplog.messages)
    Metrics(torch.zeros(1000))
    gc.collect()
    assert len(pages) == 1


@pytest.mark.parametrize("order", ["ours first", "theirs first"])
def test_pytorchs_detector_and_a_watch_both_see_a_leak(order: str) -> None:
    """It saves the garbage and lets go of it later; then it is told of."""
    theirs: list[int] = []
    ours: list[cyclescope.CycleReport] = []

    def count(garbage: list[object]) -> None:
        theirs.append(sum(type(it) is Metrics for it in garbage))

    remove = None
    try:
        if order == "theirs first":
            remove = _cycles.observe_garbage(count)  # type: ignore[no-untyped-call]
        with cyclescope.observe_tensor_cycles(ours.append) as watch:
            if remove is None:
                remove = _cycles.observe_garbage(count)  # type: ignore[no-untyped-call]
            for _ in range(5):
                Metrics(torch.zeros(1000))
                gc.collect()
            gc.collect()
            assert watch.flush(60)
    finally:
        if remove is not None:
            remove()
        sys.setprofile(None)
        gc.set_debug(0)
    assert sum(theirs) == 5
    assert [leak.bytes_held for report in ours for leak in report.leaks] == [4000] * 5


def test_undoing_leaves_what_others_have_put_there(monkeypatch: pytest.MonkeyPatch) -> None:
    original = _cycles.warn_tensor_cycles
    # Whatever this test leaves is put back at its end.
    monkeypatch.setattr(_cycles, "observe_tensor_cycles", _cycles.observe_tensor_cycles)
    patch = cyclescope.patch_torch()

    def another(callback: object) -> None: ...

    _cycles.observe_tensor_cycles = another
    patch.undo()
    patch.undo()
    assert _cycles.warn_tensor_cycles is original
    assert _cycles.observe_tensor_cycles is another


def test_two_patches_end_in_either_order(monkeypatch: pytest.MonkeyPatch) -> None:
    original = _cycles.warn_tensor_cycles
    monkeypatch.setattr(_cycles, "warn_tensor_cycles", original)
    patches = [cyclescope.patch_torch() for _ in range(3)]
    for number in (1, 0, 2):
        assert _cycles.warn_tensor_cycles is not original
        patches[number].undo()
    assert _cycles.warn_tensor_cycles is original
    patches = [cyclescope.patch_torch() for _ in range(2)]
    patches[1].undo()
    assert _cycles.warn_tensor_cycles is not original
    patches[0].undo()
    assert _cycles.warn_tensor_cycles is original
