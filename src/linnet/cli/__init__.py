"""The command line."""

import os
import signal
import sys
import threading


def main() -> None:
    """Runs `linnet`."""
    _end_at_once()
    guarded()


def guarded() -> None:
    """Runs the command in `sys.argv`; a mistake in the input is one sentence and exit code 2, never a traceback."""
    from linnet.cli.app import app

    try:
        app()
    except (ValueError, OSError) as error:
        from linnet._check import InputError

        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            words = f"{str(error.filename)!r} cannot be used: {error.strerror[0].lower()}{error.strerror[1:]}."
        elif isinstance(error, InputError):
            words = str(error)
        else:
            raise
        from rich.console import Console
        from rich.markup import escape

        Console(stderr=True).print(f"[bold red]linnet:[/] {escape(words)}", highlight=False)
        sys.exit(2)


def _end_at_once() -> None:
    """Ctrl-C ends the program even inside a compiled loop, where Python would hear of it only at the loop's end.

    The signal's number arrives in a pipe, and a thread that waits there leaves at once. That is safe: every finished
    result is already in its place on disk, put there by a rename. A command that was started in the background, where
    shells switch Ctrl-C off, does not hear it, and neither do its processes.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")  # which complains of what a sudden end leaves
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)
    signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)

    def wait() -> None:
        while os.read(ear, 1) != bytes([signal.SIGINT]):
            pass
        if sys.stderr.isatty():
            os.write(2, b"\x1b[?25h\n")  # a progress bar hides the cursor
        os.write(2, b"linnet: interrupted; what was finished is kept.\n")
        os._exit(130)

    threading.Thread(target=wait, daemon=True).start()
