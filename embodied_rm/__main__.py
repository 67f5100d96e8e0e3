"""The program: `embodied-rm` and, for launchers that start a module (torchrun), `python -m embodied_rm`."""

import io
import signal
import sys
from collections.abc import Mapping
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run() -> int:
    """Run the command line and return the exit code.

    While the program starts and ends, there is nothing to save: Ctrl-C and SIGTERM end it at once, without a traceback.
    """
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    end_at_once(handlers)
    from embodied_rm.cli.main import main
    from embodied_rm.cli.tracebacks import escape_tracebacks

    escape_tracebacks()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None, if it is closed
            stream.reconfigure(errors="backslashreplace")  # an encoding such as latin-1 lacks names of folders
    for number, handler in handlers.items():
        signal.signal(number, handler)
    try:
        return main()
    finally:
        end_at_once(handlers)


def end_at_once(handlers: Mapping[signal.Signals, Any]) -> None:
    """Let each signal end the process, but those that whoever started it ignores (`nohup`)."""
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(run())
