"""Tracebacks of bugs, whose messages may hold text of data: printed with escapes, as any other output."""

import sys
import threading
import traceback
from types import TracebackType

from embodied_rm.cli.terminal_text import escape_controls


def escape_tracebacks() -> None:
    """Print the tracebacks of this process, of its threads too, with escapes from now on."""
    sys.excepthook = print_traceback
    threading.excepthook = print_thread_traceback


def print_thread_traceback(args: threading.ExceptHookArgs) -> None:
    """Print the traceback of a thread, under the thread's name."""
    if args.exc_type is not SystemExit and args.thread is not None:
        sys.stderr.write(escape_controls(f"Exception in thread {args.thread.name}:\n", kept="\n"))
    print_traceback(args.exc_type, args.exc_value, args.exc_traceback)


def print_traceback(error_type: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """Print a traceback to stderr; an error that only ends its thread (SystemExit) has none."""
    if error_type is not SystemExit:
        sys.stderr.write(escape_controls("".join(traceback.format_exception(error_type, error, trace)), kept="\n"))
