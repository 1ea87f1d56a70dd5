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
        from rich.markup import escape

        Console(stderr=True).print(f"[bold red]linnet:[/] {escape(str(error))}", highlight=False)
        sys.exit(2)
