"""The command line."""

import contextlib
import errno
import io
import os
import signal
import sys
import threading
from typing import Any


def main() -> None:
    """Runs `linnet`."""
    for descriptor in range(3):
        if not _open(descriptor):
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number: no file of ours may become standard output
    out, err = _Mouth(1), _Mouth(2)
    sys.stdout, sys.stderr = out.text(sys.stdout), err.text(sys.stderr)
    _end_at_once()
    code: Any = 0
    try:
        guarded()
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    if out.refused is not None and out.refused.errno != errno.EPIPE:
        from linnet._files import refusal

        _complain(f"standard output cannot be written: {refusal(out.refused)}.")
        code = code or 1
    sys.exit(code)


def _open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def guarded() -> None:
    """Runs the command in `sys.argv`; what cannot be done is one sentence and exit code 2, never a traceback."""
    from linnet.cli.app import app

    try:
        app()
    except (ValueError, OSError, MemoryError, RuntimeError) as error:
        words = _words(error)
        if words is None:
            raise
        _complain(words)
        sys.exit(2)


def _words(error: Exception) -> str | None:
    """What a person is told of an error; None of one that nobody has thought of."""
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


def _complain(words: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True).print(f"[bold red]linnet:[/] {escape(words)}", highlight=False)


class _Mouth(io.RawIOBase):
    """Standard output or error whose listener may leave, or whose disk may be full: the work goes on without it, so
    that no file is lost to a closed pipe. `refused` says why, for the end.
    """

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.refused: OSError | None = None

    def text(self, before: Any) -> io.TextIOWrapper:
        """A file of text; what its encoding has no letter for becomes a question mark."""
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
        with contextlib.suppress(OSError):
            if sys.stderr.isatty():
                os.write(2, b"\x1b[?25h\n")  # a progress bar hides the cursor
            os.write(2, b"linnet: interrupted; what was finished is kept.\n")
        os._exit(130)

    threading.Thread(target=wait, daemon=True).start()
