"""What holds for all tests: interrupts are heard, also by a run that a script starts in the background."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
