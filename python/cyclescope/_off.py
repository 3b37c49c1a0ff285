"""The switch: with ``CYCLESCOPE_OFF=1`` every entry point keeps its types and does nothing.

Nothing is looked at or collected; there is no hook, thread, signal or patch, nothing is registered
for the end of the program or for forks, nothing is logged, and ranks send each other nothing.
Arguments and settings are checked as ever. The native functions that look at the heap (``find``,
``look``, ``heap``, ``why_alive``) ask here too, so whatever reaches them finds nothing.
"""

import os

VARIABLE = "CYCLESCOPE_OFF"

OFF = os.environ.get(VARIABLE, "").strip().lower() not in ("", "0", "false", "no")
"""Read once, when cyclescope is imported: a program is watched from end to end or not at all."""

NOTE = f"cyclescope is off: {VARIABLE} is set. Nothing was looked at." if OFF else None
"""What each empty result says of itself, so that nobody takes it for a clean one."""
