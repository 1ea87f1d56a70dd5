"""`linnet lab`: the lab's page."""

from pathlib import Path

from linnet.lab import serve


def run(file: Path | None, page: str | None, address: str, port: int, browser: bool) -> None:
    """Serves the pages until interrupted, and opens the given one."""
    serve(page=page, file=file, address=address, port=port, browser=browser)
