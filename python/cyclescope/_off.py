"""The off switch: with ``CYCLESCOPE_OFF=1`` every function returns an empty result.

Nothing is inspected or collected. No hook, thread, signal handler, patch, exit handler or fork
handler is installed, nothing is logged, and ranks exchange no messages. Arguments and settings are
still validated. The native functions that inspect the heap (``find``, ``look``, ``heap``,
``why_alive``) check the switch too and return empty results.
"""

import os

VARIABLE = "CYCLESCOPE_OFF"

OFF = os.environ.get(VARIABLE, "").strip().lower() not in ("", "0", "false", "no")
"""Read once, when cyclescope is imported, so that it holds for the whole process."""

NOTE = f"cyclescope is off: {VARIABLE} is set. Nothing was checked." if OFF else None
"""Added to each empty result, so that it is not mistaken for a clean one."""
