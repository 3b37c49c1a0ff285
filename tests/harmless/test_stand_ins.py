"""What stands in the place of a framework in ``sys.modules`` is neither imported nor asked."""

from __future__ import annotations

import textwrap

import pytest

from support.processes import python

STAND_INS = {
    "not imported before it is used": """
        import importlib.util

        def stand_in(name):
            spec = importlib.util.find_spec(name)
            spec.loader = importlib.util.LazyLoader(spec.loader)
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module

        def is_untouched():
            return all("Lazy" in type(each).__name__ for each in standing)

        standing = [stand_in("numpy"), stand_in("xml.dom.minidom")]
        standing[1].__name__ = "torch"
        sys.modules["torch"] = standing[1]
    """,
    "raises whatever it is asked for": """
        import types

        class Stub(types.ModuleType):
            def __getattr__(self, name):
                asked.append(name)
                raise ImportError(name)

        asked = []
        for name in ("torch", "torch.cuda", "torch._C", "jaxlib._jax", "numpy", "cupy"):
            sys.modules[name] = Stub(name)

        def is_untouched():
            return not asked
    """,
    "is no module": """
        from unittest import mock

        class Stub:
            def __getattribute__(self, name):
                asked.append(name)
                return mock.MagicMock()

        asked = []
        for name in ("torch", "torch.cuda", "torch._C", "jaxlib._jax", "numpy", "cupy"):
            sys.modules[name] = Stub()

        def is_untouched():
            return not asked
    """,
}

CALLS = """
import gc, sys
import cyclescope

{stand_in}

watch = cyclescope.warn_tensor_cycles(devices="any", record_history=True)
cyclescope.find_tensor_cycles(devices=["cpu", "cuda:0"])
with cyclescope.forbid_tensor_cycles():
    gc.collect()
cyclescope.step(every=1)
cyclescope.watch_growth(every=1).step()
cyclescope.on_oom({folder!r})
cyclescope.collect_on_pressure(0.9)
cyclescope.heap()
cyclescope.why_alive([[]])
watch.flush()
assert is_untouched()
print("end")
"""


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_is_left_alone(name: str, tmp_path: object) -> None:
    stand_in = textwrap.dedent(STAND_INS[name])
    process = python("-c", CALLS.format(stand_in=stand_in, folder=str(tmp_path)))
    assert (process.stdout, process.returncode) == ("end\n", 0), process.stderr


def test_a_key_of_sys_modules_may_be_anything() -> None:
    program = """
import sys
import cyclescope

sys.modules[3] = sys
cyclescope.find_tensor_cycles(devices="any", ignore=["torhc"])
print("end")
"""
    process = python("-c", program)
    assert (process.stdout, process.returncode) == ("end\n", 0), process.stderr
