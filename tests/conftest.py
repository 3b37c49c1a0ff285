"""What all tests need of the process that they run in."""

import signal

# A shell starts what it runs in the background with Ctrl-C ignored, and so do the programs that the
# tests start; some of those are to be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
