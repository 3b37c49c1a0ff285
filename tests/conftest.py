"""The order of the files, and fixtures for tests that run the garbage collector themselves."""

from __future__ import annotations

import gc
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cyclescope
from support.imports import is_large

pytest.register_assert_rewrite(
    "support.hostile", "support.names", "support.owners", "support.random_programs"
)

# Most tests leak a few bytes of host memory, and expect to be warned.
os.environ["CYCLESCOPE_MIN_BYTES"] = "0"

# A pytest worker has one core. More threads of OpenMP or BLAS would wait for each other, spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

SLOWEST = (
    "harmless/test_extensions.py",
    "python/test_documentation.py",
    "python/test_examples.py",
    "analysis/test_growth.py",
    "harmless/test_programs.py",
    "harmless/test_memory.py",
    "analysis/test_growth_objects.py",
    "analysis/test_growth_headline.py",
    "render/test_growth_examples.py",
    "analysis/test_heap_torch.py",
    "analysis/test_why_alive.py",
    "analysis/test_why_alive_torch.py",
    "analysis/test_keepers.py",
    "python/test_command_line.py",
    "python/test_pytest_results.py",
    "python/test_pytest_settings.py",
    "analysis/test_held_models.py",
    "analysis/test_fixtures.py",
    "python/test_off.py",
    "watch/test_distributed.py",
    "page/test_live.py",
    "analysis/test_scoring.py",
    "python/test_on_signal.py",
)
"""The files that take longest, roughly in that order. They start first, so that all workers end
together; those that look at all objects alive come before others import more."""

SAMPLED = {
    5: (
        "analysis/test_gradients.py",
        "analysis/test_growth_alike.py",
        "analysis/test_heap.py",
        "analysis/test_heap_torch.py",
        "analysis/test_oom.py",
        "analysis/test_uncollectable.py",
        "analysis/test_why_alive.py",
        "analysis/test_why_alive_torch.py",
        "capture/test_hostile_fuzz.py",
        "collector/test_frozen.py",
        "collector/test_second_way.py",
        "device/test_device.py",
        "device/test_device_frameworks.py",
        "device/test_jax_untouched.py",
        "device/test_lent.py",
        "diagnose/test_owner_torch.py",
        "diagnose/test_signatures.py",
        "page/test_colours.py",
        "page/test_keyboard.py",
        "page/test_list.py",
        "page/test_notebook.py",
        "page/test_opening.py",
        "page/test_saving.py",
        "page/test_speed.py",
        "python/test_fix.py",
        "python/test_forbid.py",
        "python/test_integrations.py",
        "python/test_on_signal.py",
        "python/test_run_as_python.py",
        "python/test_run_ends.py",
        "python/test_run_results.py",
        "python/test_saved_reports.py",
        "python/test_typing.py",
        "render/test_privacy.py",
        "render/test_share.py",
        "watch/test_faults_callbacks.py",
        "watch/test_faults_memory.py",
        "watch/test_faults_processes.py",
        "watch/test_known.py",
    ),
    9: (
        "analysis/test_freed_how.py",
        "analysis/test_growth.py",
        "analysis/test_growth_advice.py",
        "analysis/test_growth_objects.py",
        "analysis/test_in_use.py",
        "analysis/test_jax_fixtures.py",
        "analysis/test_keepers.py",
        "analysis/test_many_keepers.py",
        "device/test_backend.py",
        "device/test_host_memory.py",
        "device/test_jax.py",
        "diagnose/test_owner.py",
        "diagnose/test_owner_standard.py",
        "harmless/test_memory.py",
        "page/test_answers.py",
        "page/test_details.py",
        "page/test_drawing.py",
        "page/test_hostile_page.py",
        "page/test_live.py",
        "page/test_served.py",
        "page/test_several.py",
        "python/test_command_line.py",
        "python/test_examples.py",
        "python/test_fix_projects.py",
        "python/test_live_cli.py",
        "python/test_off.py",
        "python/test_outputs.py",
        "python/test_pytest_ending.py",
        "python/test_pytest_files.py",
        "python/test_pytest_marker.py",
        "python/test_pytest_outcomes.py",
        "python/test_pytest_plugin.py",
        "python/test_pytest_results.py",
        "python/test_pytest_scope.py",
        "python/test_pytest_settings.py",
        "python/test_run_leaks.py",
        "python/test_schema.py",
        "python/test_torch_debug.py",
        "render/test_privacy_live.py",
    ),
    12: (
        "analysis/test_growth_headline.py",
        "analysis/test_growth_library.py",
        "analysis/test_growth_views.py",
        "analysis/test_held_models.py",
        "capture/test_naming_touches_nothing.py",
        "collector/test_finalizers.py",
        "watch/test_loader_workers.py",
    ),
}
"""Files that take long: of their tests ``--sampled`` runs each n-th case."""

LIBRARIES = ("python/test_integrations.py", "device/test_jax.py", "analysis/test_jax_fixtures.py")
"""The files that import what makes the heap of a worker much larger. They come last."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Without PyTorch in the heap, a full collection takes a tenth of the time."""
    parser.addoption("--frameworks", choices=["with", "without"], help="only files that import any")
    parser.addoption(
        "--sampled", action="store_true", help="of tests marked so, only each n-th of the cases"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests of the files in ``SAMPLED``."""
    name = item.path.relative_to(Path(__file__).parent).as_posix()
    for number, names in SAMPLED.items():
        if name in names:
            item.add_marker(pytest.mark.sampled(number, of="file"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves folders without a wanted file out as a whole, as ``conftest.py`` may import one."""
    wanted = config.getoption("--frameworks")
    if wanted is None:
        return None
    files = collection_path.rglob("test_*.py") if collection_path.is_dir() else [collection_path]
    tests = [file for file in files if file.match("test_*.py")]
    unwanted = [is_large(file) != (wanted == "with") for file in tests]
    return True if unwanted and all(unwanted) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--sampled"):
        left_out = set(not_in_sample(items))
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    here = Path(__file__).parent
    ranks = {here / name: rank - len(SLOWEST) for rank, name in enumerate(SLOWEST)}
    ranks |= {here / name: 1 for name in LIBRARIES}
    items.sort(key=lambda item: ranks.get(item.path, 0))


def not_in_sample(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """All cases but each n-th, of a test that is marked ``sampled(n)`` and of a file in
    ``SAMPLED``."""
    seen: Counter[tuple[Path, str]] = Counter()
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None:
            test = "" if mark.kwargs.get("of") == "file" else item.name.partition("[")[0]
            if seen[item.path, test] % mark.args[0]:
                yield item
            seen[item.path, test] += 1


@pytest.fixture(scope="session", autouse=True)
def temporary_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Reports that a program was given no folder for go where pytest cleans up."""
    os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("tmp"))
    tempfile.tempdir = None


@pytest.fixture
def programs_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixtures that a test starts do not import PyTorch, which takes most of their time."""
    monkeypatch.setenv("FIXTURES_WITHOUT_TORCH", "1")


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> Iterator[None]:
    """Freezes what is alive already, such as PyTorch's modules: collections and looks skip it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def no_garbage() -> None:
    """Starts without what earlier tests have left to the collector."""
    gc.collect()


@pytest.fixture
def collector_paused() -> Iterator[None]:
    """Starts with no garbage, and keeps automatic collections out of the test."""
    # Finalizers may leave new garbage. CPython 3.12.3 does not free a generator that holds
    # itself (gh-118272).
    for _ in range(10):
        if not gc.collect():
            break
    was_enabled = gc.isenabled()
    gc.disable()
    yield
    gc.collect()
    if was_enabled:
        gc.enable()


@pytest.fixture
def no_other_callbacks() -> Iterator[None]:
    """Leaves a new watch alone in ``gc.callbacks``, where Hypothesis has a callback too.

    What the test itself puts there does not outlive it.
    """
    others = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = others


@pytest.fixture
def watched() -> Iterator[Callable[[], list[Any]]]:
    """Collects, and returns the buffers that a watch saw go."""
    seen: list[Any] = []
    watch = cyclescope.observe_tensor_cycles(seen.append, devices="any")

    def collect() -> list[Any]:
        gc.collect()
        watch.flush()
        return [buffer for report in seen for leak in report.leaks for buffer in leak.buffers]

    yield collect
    watch.stop()
