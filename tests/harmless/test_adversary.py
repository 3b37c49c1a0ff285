"""Programs written to be harmed by a watch: each does the same with and without."""

from __future__ import annotations

import pytest

import adversary

SEEN = {
    "fork_of_a_single_thread": "the watch has a thread, of which CPython warns from 3.12 on",
    "module_whose_name_compares": "sys.modules is asked by name",
    "storages_of_tensors": "PyTorch keeps the Python object of a storage that is alive",
    "garbage_of_many_shapes": "it measures time",
}
"""What a program can see; docs/safety.md says so."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in adversary.PROGRAMS if name not in SEEN])
def test_a_program_does_the_same(name: str) -> None:
    assert adversary.run(name, "--watch") == adversary.run(name)


def test_what_can_be_seen_is_there() -> None:
    assert set(adversary.PROGRAMS) > set(SEEN)
