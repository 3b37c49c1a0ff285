"""Ctrl-C, for tests that press it."""

import signal


def hear() -> None:
    """Let this process and those that it starts be interrupted.

    A shell starts what it runs in the background with interrupts ignored, and so do those.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
