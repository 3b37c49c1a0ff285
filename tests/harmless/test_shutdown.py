"""What finalizers call while the interpreter shuts down returns."""

from __future__ import annotations

import pytest

from support.processes import python

PROGRAM = """
import gc
import cyclescope

for name in cyclescope.__all__:
    getattr(cyclescope, name)


class Late:
    def __del__(self):
        try:
            {call}
        except (RuntimeError, ImportError) as error:
            print(error)
        print("end")


gc.disable()
late = Late()
late.me = late
del late
"""


@pytest.mark.parametrize(
    "call",
    [
        "cyclescope.warn_tensor_cycles(devices='any')",
        "cyclescope.observe_tensor_cycles(print, devices='any')",
        "cyclescope.step(every=1, devices='any')",
        "cyclescope.forbid_tensor_cycles(devices='any')(lambda: None)()",
        "cyclescope.on_signal('USR1')",
        "cyclescope.watch_growth(every=1).step()",
        "cyclescope.find_tensor_cycles(devices='any')",
        "cyclescope.heap()",
    ],
)
def test_a_call_at_shutdown_returns(call: str) -> None:
    process = python("-c", PROGRAM.format(call=call), timeout=60)
    assert (process.stdout.splitlines()[-1:], process.returncode) == (["end"], 0), process.stderr
