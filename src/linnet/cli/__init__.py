"""The command line."""

import contextlib
import errno
import io
import os
import signal
import sys
import threading
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Runs `linnet`."""
    for descriptor in range(3):
        if not _open(descriptor):
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, so that no other file becomes standard output
    out, err = _Output(1), _Output(2)
    sys.stdout, sys.stderr = out.text(sys.stdout), err.text(sys.stderr)
    _exit_on_interrupt()
    code: Any = 0
    try:
        guarded()
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    if out.refused is not None and out.refused.errno != errno.EPIPE:
        from linnet._files import refusal

        _print_error(f"standard output cannot be written: {refusal(out.refused)}.")
        code = code or 1
    sys.exit(code)


def _open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def guarded() -> None:
    """Runs the command in `sys.argv`; an expected error is one sentence and exit code 2, never a traceback."""
    from linnet.cli.app import app

    try:
        app()
    except (ValueError, OSError, MemoryError, RuntimeError) as error:
        message = _message(error)
        if message is None:
            raise
        _print_error(message)
        sys.exit(2)


def _message(error: Exception) -> str | None:
    """The sentence for an expected error, None for any other."""
    from linnet._check import InputError
    from linnet._files import refusal

    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        what = "the disk" if error.filename is None else repr(str(error.filename))
        return f"{what} cannot be used: {refusal(error)}."
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):  # as JAX says it
        return "the memory of this machine does not suffice: choose smaller dimensions or fewer records."
    return None


def _print_error(message: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True).print(f"[bold red]linnet:[/] {escape(message)}", highlight=False)


class _Output(io.RawIOBase):
    """Standard output or error that may be closed, or on a full disk: writes are then dropped and the work goes on, so
    that no result file is lost to a closed pipe. `refused` is the first error.
    """

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.refused: OSError | None = None

    def text(self, before: Any) -> io.TextIOWrapper:
        """A text file in the encoding of `before`; characters that it lacks become question marks."""
        encoding = getattr(before, "encoding", None) or "utf-8"  # None where the descriptor was closed from the start
        buffered = io.BufferedWriter(self)
        return io.TextIOWrapper(buffered, encoding=encoding, errors="replace", line_buffering=True)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.descriptor

    def isatty(self) -> bool:
        return os.isatty(self.descriptor)

    def write(self, data: Any) -> int:
        if self.refused is None:
            try:
                return os.write(self.descriptor, data)
            except OSError as error:
                self.refused = error
        return len(data)


def _exit_on_interrupt() -> None:
    """Makes Ctrl-C end the program even inside a compiled loop, where Python handles signals only at the loop's end.

    The signal's number is written to a pipe, and a thread that reads it exits at once. That is safe: every finished
    result is already in its place on disk, put there by a rename. Commands in the background, where shells ignore
    Ctrl-C, are not interrupted, and neither are their processes.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")  # it warns about what a sudden exit leaves
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def wait() -> None:
        while os.read(reading, 1) != bytes([signal.SIGINT]):
            pass
        with contextlib.suppress(OSError):
            if sys.stderr.isatty():
                os.write(2, b"\x1b[?25h\n")  # a progress bar hides the cursor
            os.write(2, b"linnet: interrupted; what was finished is kept.\n")
        os._exit(130)

    threading.Thread(target=wait, daemon=True).start()
