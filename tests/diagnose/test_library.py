"""Whose leak is it, the program's own or a library's, and is it a known one?"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest

import cyclescope

PACKAGE = """
class Keeper:
    def __init__(self, payload):
        self.payload = payload
        self.me = self

    def size(self):
        return len(self.payload)
"""


class Owner:
    """The program's own object, held by a library's cycle."""

    def __init__(self) -> None:
        self.array = numpy.zeros(2**20, numpy.uint8)


class Looped(Owner):
    """The program's own cycle."""

    def __init__(self) -> None:
        super().__init__()
        self.me = self


pytestmark = pytest.mark.usefixtures("collector_paused")


@pytest.fixture
def keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str | None], type]]:
    """A stand-in for an installed library: a package as an installer leaves it."""

    def install(metadata: str | None) -> type:
        folder = tmp_path / "lib" / "site-packages"
        (folder / "standin_keeper").mkdir(parents=True)
        (folder / "standin_keeper" / "__init__.py").write_text(PACKAGE)
        if metadata:
            (folder / metadata).mkdir()
            (folder / metadata / "RECORD").write_text("standin_keeper/__init__.py,,\n")
        monkeypatch.syspath_prepend(folder)
        keeper: type = importlib.import_module("standin_keeper").Keeper
        return keeper

    yield install
    sys.modules.pop("standin_keeper", None)


@pytest.mark.parametrize(
    ("metadata", "name", "version"),
    [
        ("standin_keeper-1.2.3.dist-info", "standin_keeper", "1.2.3"),
        ("Other_Name-4.5.dist-info", "Other_Name", "4.5"),
        (None, "standin_keeper", None),
    ],
)
def test_a_library_is_named_with_its_version_and_the_nearest_own_line(
    keeper: Callable[[str | None], type], metadata: str | None, name: str, version: str | None
) -> None:
    kind = keeper(metadata)
    kind(Owner())
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    (leak,) = report.leaks
    assert leak.library is not None
    assert (leak.library.name, leak.library.version) == (name, version)
    assert leak.library.your_line is not None
    assert leak.library.your_line.startswith(f"{__file__}:")
    assert leak.known is None
    assert report.yours == []
    assert [leak.signature for leak in report.library] == [leak.signature]
    words = name if version is None else f"{name} {version}"
    assert f"In a library: {words}; your nearest line: {__file__}:" in " ".join(str(report).split())
    again = cyclescope.CycleReport.from_json(report.to_json())
    assert [(e.library.name, e.library.version) for e in again.leaks if e.library] == [
        (name, version)
    ]


def test_a_cycle_of_a_library_and_the_program_is_the_programs(
    keeper: Callable[[str | None], type],
) -> None:
    owner = Owner()
    owner.keeper = keeper(None)(owner)  # type: ignore[attr-defined]
    del owner.keeper.me  # type: ignore[attr-defined]
    del owner
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    assert [leak.library for leak in report.yours] == [None]
    assert report.library == []
    assert "In a library" not in str(report)


@pytest.mark.parametrize("by", ["library", "signature"])
def test_ignored_leaks_are_not_told_and_not_counted(
    keeper: Callable[[str | None], type], by: str
) -> None:
    kind = keeper("standin_keeper-1.2.3.dist-info")
    kind(Owner())
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    ignore = ["Standin-Keeper"] if by == "library" else [leak.signature]
    kind(Owner())
    Looped()
    report = cyclescope.find_tensor_cycles(devices="any", ignore=ignore)
    assert ["Looped" in leak.summary for leak in report.leaks] == [True]
    told: list[cyclescope.Leak] = []
    with cyclescope.observe_tensor_cycles(
        lambda report: told.extend(report.leaks), devices="any", ignore=ignore
    ) as watch:
        kind(Owner())
        Looped()
        gc.collect()
    assert ["Looped" in leak.summary for leak in told] == [True]
    assert [tally.count for tally in watch.leaks] == [1]


@pytest.mark.parametrize("wrong", ["torch", 3, None, [3], [""], {"torch": 1}])
def test_what_cannot_be_ignored_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"^ignore must"):
        cyclescope.find_tensor_cycles(devices="any", ignore=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^ignore must"):
        cyclescope.warn_tensor_cycles(devices="any", ignore=wrong)  # type: ignore[arg-type]


def test_pytorchs_own_leaks_are_known() -> None:
    torch = pytest.importorskip("torch", reason="a leak of PyTorch itself")
    from torch.nn.utils.parametrizations import weight_norm

    def make() -> None:
        weight_norm(torch.nn.Linear(64, 64))
        torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(64, 64)))

    make()  # imports what PyTorch imports late
    gc.collect()
    make()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    known = {leak.known.name for leak in report.leaks if leak.known}
    assert known == {"torch-parametrized-class", "torch-fx-owning-module"}
    assert report.yours == []
    version = importlib.metadata.version("torch")
    for leak in report.library:
        assert leak.library is not None
        assert leak.library.name == "torch"
        assert leak.library.version is not None
        assert version.startswith(leak.library.version.split("+")[0])
    assert "Known: occurs in torch" in str(report)
    make()
    without = cyclescope.find_tensor_cycles(devices="any", ignore=["torch"])
    assert without.leaks == []


def test_the_warning_of_a_known_leak_names_the_library_and_the_remedy(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch", reason="a leak of PyTorch itself")
    from torch.utils._pytree import tree_flatten

    def flatten() -> None:
        batch = [torch.zeros(2**18)]
        tree_flatten(batch, is_leaf=lambda node: node is batch)

    with cyclescope.warn_tensor_cycles(devices="any", report_dir=tmp_path):
        flatten()
        gc.collect()
    (warning,) = (message for message in caplog.messages if "reference cycle" in message)
    version = importlib.metadata.version("torch").split("+")[0]
    words = " ".join(warning.split())
    assert f"In a library: torch {version}" in words
    assert version in words.partition("Known: occurs in torch ")[2].split(" Why: ")[0].split(", ")
    assert "Pass an `is_leaf` that captures no tensors." in words


def test_pytest_raises_beside_a_tensor_is_known_and_del_is_its_remedy() -> None:
    def function(*, let_go: bool) -> None:
        held = numpy.zeros(2**20, numpy.uint8)
        with pytest.raises(ValueError, match="no") as e:
            raise ValueError("no" if held.any() else "no, it is empty")
        assert e.type is ValueError
        if let_go:
            del e

    function(let_go=False)
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leak.known is not None
    assert (leak.known.name, leak.library) == ("pytest-raises-frame", None)
    assert "Delete that variable at the end" in leak.advice
    function(let_go=True)
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks == []
