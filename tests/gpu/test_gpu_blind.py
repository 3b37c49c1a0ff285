"""A check of GPUs says that it can find nothing where that is so, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

Program = Callable[..., Any]

CHECK = """
import json, logging, torch, cyclescope

said = []
class Keep(logging.Handler):
    def emit(self, record): said.append(record.getMessage())
logging.getLogger("cyclescope").addHandler(Keep())
begun = torch.cuda.is_initialized()
cyclescope.assert_no_tensor_cycles(devices="cuda")
print(json.dumps([begun, torch.cuda.is_initialized(), said]))
"""


def test_a_machine_with_a_gpu_is_not_told(program: Program) -> None:
    assert program(CHECK, CUDA_VISIBLE_DEVICES="0") == [False, False, []]


def test_who_hides_every_gpu_is_told(program: Program) -> None:
    _, begun, (said,) = program(CHECK, CUDA_VISIBLE_DEVICES="")
    assert not begun
    assert "CUDA_VISIBLE_DEVICES is '', which hides every GPU" in said


def test_a_variable_that_came_too_late_hides_nothing(program: Program) -> None:
    late = (
        "import os, torch\ntorch.zeros(1, device='cuda')\nos.environ['CUDA_VISIBLE_DEVICES'] = ''"
    )
    assert program(late + CHECK) == [True, True, []]
