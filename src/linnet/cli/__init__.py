"""The command line."""

import sys


def main() -> None:
    """Runs `linnet`; a mistake in the input is one sentence and exit code 2, never a traceback."""
    from linnet.cli.app import app

    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except ValueError as error:
        from linnet._check import InputError

        if not isinstance(error, InputError):
            raise
        from rich.console import Console

        Console(stderr=True).print(f"[bold red]linnet:[/] {error}", highlight=False)
        sys.exit(2)
