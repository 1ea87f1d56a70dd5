"""The commands. Heavy rooms are imported inside them, so that help is instant."""

import json
from pathlib import Path
from typing import Annotated

import typer

from linnet._version import __version__

app = typer.Typer(
    name="linnet",
    help="A laboratory for the training dynamics of linear networks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"linnet {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """A laboratory for the training dynamics of linear networks."""


@app.command()
def demo(
    d: Annotated[int, typer.Option(help="Dimension of the matrix to recover.")] = 300,
    rank: Annotated[int, typer.Option(help="Rank of the signal.")] = 5,
    gamma_w: Annotated[float, typer.Option(help="The network has d^gamma_w hidden neurons.")] = 2.25,
    gamma_sigma2: Annotated[float, typer.Option(help="Weights start with variance d^gamma_sigma2.")] = -1.85,
    steps: Annotated[int, typer.Option(help="Steps of gradient descent.")] = 420,
    seed: Annotated[int, typer.Option(help="Seed of the target, the noise and the start.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the picture goes (.png, .svg or .pdf).")] = Path("linnet-demo.png"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train an enormous two-layer network exactly, and draw what it learns.

    Noisy low-rank recovery: the network first learns the signal, then the noise. Its width is a number and costs
    nothing: the neurons are drawn and trained in compressed form.
    """
    from linnet.cli.demo import run

    result = run(d, rank, gamma_w, gamma_sigma2, steps, seed, out, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(result, indent=2))


@app.command("list")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """Show the papers with their claims and errata."""
    from linnet.cli.verify import listing, show_list

    if as_json:
        typer.echo(json.dumps(listing(), indent=2))
    else:
        show_list()


@app.command()
def verify(
    ids: Annotated[list[str] | None, typer.Argument(help="Claims or errata, such as mixed/C6; default all.")] = None,
    paper: Annotated[str | None, typer.Option(help="Only this paper, such as mixed.")] = None,
    size: Annotated[str, typer.Option(help="quick (seconds each) or full (minutes).")] = "quick",
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Check claims and errata on this machine; exit with 1 if any is not as stated."""
    from linnet.cli.verify import exit_code, run

    result = run(ids or [], paper, size, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    raise typer.Exit(exit_code(result))
