"""The commands and their options. What they run is in modules that are imported on a call, so that help is fast."""

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from linnet._files import dumps
from linnet._programs import cache_programs
from linnet._version import __version__
from linnet.cli import typed

app = typer.Typer(
    name="linnet",
    help="Predict, simulate exactly, and verify the training dynamics of linear networks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _count(default: int, text: str) -> Any:
    """An option for a whole number, typed as 1000000, 1_000_000 or 1e6."""
    return typer.Option(default, help=text, parser=typed.count, metavar="INTEGER")


def command(
    into: typer.Typer, target: str, name: str | None = None, *, prints: bool = True, exits: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a command of a declaration: a function without a body, its parameters the options, its docstring the help.

    `target` is "module.function" in `linnet.cli`, imported when the command is called. It takes the options by name
    and returns what `--json` prints; with `quiet` it prints nothing itself. With `exits` the exit code is
    `exit_code(result, **options)` of that module. Without `prints` there is no `--json`.
    """

    def declare(declaration: Callable[..., None]) -> Callable[..., None]:
        parameters = list(inspect.signature(declaration).parameters.values())

        def call(**options: Any) -> None:
            quiet = {"quiet": options.pop("as_json")} if prints else {}
            module, function = target.split(".")
            found = importlib.import_module(f"linnet.cli.{module}")
            result = getattr(found, function)(**options, **quiet)
            if quiet.get("quiet"):
                typer.echo(dumps(result))
            if exits:
                raise typer.Exit(found.exit_code(result, **options))

        json = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_JSON)
        call.__signature__ = inspect.Signature([*parameters, *[json][:prints]])  # type: ignore[attr-defined]
        into.command(name or declaration.__name__, help=inspect.getdoc(declaration))(call)
        return declaration

    return declare


_JSON = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_SOURCES = typer.Option(
    [], "--from", help="A Python file or an installed module with claims and experiments of your own."
)
_CLUSTER = typer.Option(
    None,
    metavar="WHERE",
    help="Compute on Dask workers: local, local:8, tcp://..., a scheduler file, or a TOML file for a batch system.",
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
    """Predict, simulate exactly, and verify the training dynamics of linear networks."""
    cache_programs()


@command(app, "demo.run")
def demo(
    d: int = _count(300, "Dimension of the matrix to recover."),
    rank: int = _count(5, "Rank of the signal."),
    gamma_w: float = typer.Option(2.25, help="The network has d^gamma_w hidden neurons."),
    gamma_sigma2: float = typer.Option(-1.85, help="Initial weights have variance d^gamma_sigma2."),
    steps: int = _count(420, "Steps of gradient descent."),
    seed: int = _count(0, "Seed of the target, the noise, and the initialization."),
    out: Path = typer.Option(
        Path("linnet-demo.png"), help="File of the figure (.png, .svg, .pdf) or animation (.gif, .mp4)."
    ),
) -> None:
    """Train a wide two-layer network (375,000 neurons by default) exactly, and plot what it learns.

    Noisy low-rank recovery: the network first learns the signal, then the noise. The compute cost does not depend on
    the width: neurons are drawn and trained in compressed form.
    """


@command(app, "show.show_list", "list")
def list_(
    wanted: list[str] = typer.Argument([], metavar="NAMES", help="Papers or ids such as mixed/C6; default all."),
    kind: str | None = typer.Option(
        None, help="Only claims, errata or experiments, or one kind or grade, such as exact, refuted or error."
    ),
    sources: list[str] = _SOURCES,
) -> None:
    """Show the papers with their claims, errata and experiments."""


@command(app, "show.show")
def show(
    name: str = typer.Argument(..., help="A claim, an erratum or an experiment, such as mixed/C6 or mixed/fig1."),
    run: bool = typer.Option(True, "--run/--no-run", help="Verify a claim and show every finding."),
    size: str = typer.Option("quick", help="quick (seconds) or full (minutes)."),
    settings: list[str] = typer.Option([], "--set", help="Change a parameter of a claim: name=value."),
    sources: list[str] = _SOURCES,
) -> None:
    """Show everything about one claim, erratum or experiment.

    Its place in the paper, the whole statement, hypotheses, parameters, what its negative control changes, and every
    finding with what was measured and required; of an experiment its parameters at both sizes.
    """


@command(app, "verify.run", exits=True)
def verify(
    ids: list[str] = typer.Argument([], help="Claims or errata, such as mixed/C6; default all."),
    paper: str | None = typer.Option(None, help="Only this paper, such as mixed."),
    kind: str | None = typer.Option(
        None, help="Only claims of this kind, such as statistical, or only errata: erratum."
    ),
    size: str = typer.Option("quick", help="quick (seconds each) or full (minutes)."),
    seeds: int = _count(
        1, "Check the claims that draw something with so many seeds, and show the table of all findings."
    ),
    out: Path | None = typer.Option(None, help="Also write the verdicts to index.html in this folder."),
    settings: list[str] = typer.Option(
        [], "--set", help="Change a parameter where a claim has it: name=value; linnet show lists them."
    ),
    sources: list[str] = _SOURCES,
    cluster: str | None = _CLUSTER,
) -> None:
    """Check claims and errata on this machine; exit with 1 if any is not as stated.

    With `--from mine.py` and no ids: those of your file.

    With `--seeds 5`: what every finding measured over five seeds, how many fail, and how many standard deviations are
    left.
    """


@command(app, "reproduce.run", exits=True)
def reproduce(
    ids: list[str] = typer.Argument([], help="Experiments, such as mixed/fig1; default all."),
    size: str = typer.Option("quick", help="quick (about a minute each) or paper (as published)."),
    out: Path = typer.Option(Path("linnet-report"), help="Folder for figures, data, verdicts and the page index.html."),
    settings: list[str] = typer.Option([], "--set", help="Change a parameter: field=value."),
    claims: bool | None = typer.Option(
        None, "--claims/--no-claims", help="Verify all claims too, at quick size; default if no ids are given."
    ),
    seeds: int = _count(1, "Check what must hold with so many seeds, and show the table of all; draws nothing."),
    sources: list[str] = _SOURCES,
    cluster: str | None = _CLUSTER,
) -> None:
    """Reproduce the papers' figures with their data and checks; exit with 1 if a check fails.

    Without ids: the whole report, all figures and all claims (with `--from mine.py` those of your file). Results that
    are already in the folder, with the same parameters and versions, are not computed again.

    With `--seeds 10`: what was measured over ten seeds, how many fail, and how many standard deviations are left.
    """


@command(app, "sweep.run", exits=True)
def sweep(
    places: list[str] = typer.Argument(
        ..., metavar="SPEC", help="A TOML file: problem, initialization, optimizer, axes, what to store."
    ),
    out: str | None = typer.Option(
        None, help="The zarr store to create or complete: a folder, s3://..., gs://... or file://..."
    ),
    part: str = typer.Option("1/1", help="Compute this part of the chunks only, such as 2/3."),
    check: bool = typer.Option(
        False,
        "--check",
        help="Only report damaged chunks of a store (--check STORE); exit with 1 if there are any.",
    ),
    export: bool = typer.Option(
        False, "--export", help="Write a store to one file: --export STORE runs.nc, or runs.parquet."
    ),
    merge: bool = typer.Option(
        False, "--merge", help="Combine two stores of the same grid: --merge FIRST SECOND --out STORE."
    ),
    cluster: str | None = _CLUSTER,
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Only report the number of chunks, the memory, and a time estimated from a few runs."
    ),
) -> None:
    """Run a grid of networks into one labeled store; an interrupted sweep is resumed by the same command.

    Chunks carry checksums: a damaged one is found and computed again. The store opens with `xarray.open_zarr`. How to
    write the file: see docs/sweeps.md.
    """


@command(app, "lab.run", prints=False)
def lab(
    file: Path | None = typer.Argument(None, help="A TOML file that a page exported."),
    page: str | None = typer.Option(None, help="The page to open: network, phase, edge, flows, rich, data, landscape."),
    address: str = typer.Option("127.0.0.1", help="Address to listen on: this machine only, or 0.0.0.0 for all."),
    port: int = _count(0, "The port; 0 takes a free one."),
    browser: bool = typer.Option(True, help="Open a browser there."),
) -> None:
    """Serve interactive pages on the training of linear networks, in a browser.

    Everything shown can be exported: the Python code, data, figures, animations, and the address with all values.
    Needs `pip install 'linnet[lab]'`.
    """


@command(app, "probe.run")
def probe(
    folder: Path = typer.Argument(..., help="The folder that `linnet.probe.Probe(..., folder=...)` writes to."),
    out: Path | None = typer.Option(None, help="Draw it to this file (.png, .svg or .pdf)."),
    report: Path | None = typer.Option(None, help="Write a page, index.html, into this folder."),
) -> None:
    """Show what a probe measured of a PyTorch training: status, alarms, critical steps, curvature, and layers.

    Reads the record of a finished, a killed or a running one; PyTorch is not needed.
    """


sets = typer.Typer()
app.add_typer(sets, name="data")


@sets.callback(invoke_without_command=True)
def data_(context: typer.Context, as_json: _JSON = False) -> None:
    """Published sets of images (MNIST, Fashion-MNIST, CIFAR-10, digits): where they are and whether they are intact.

    They are searched for in the folder that the environment variable LINNET_DATA names, with folders mnist, fashion and
    cifar10 in it, then in the user's cache.
    """
    if context.invoked_subcommand is None:
        from linnet.cli.data import listed

        result = listed([], quiet=as_json)
        if as_json:
            typer.echo(dumps(result))


@command(sets, "data.fetch", "fetch")
def fetch_(
    names: list[str] = typer.Argument(..., help="mnist, fashion, cifar10."),
) -> None:
    """Fetch sets from their published addresses, into LINNET_DATA's folder or else the user's cache.

    Every file is checked by its checksum; files that are there and intact are kept. Needs `pip install pooch`.
    """


@command(sets, "data.listed", "check", exits=True)
def check_(
    names: list[str] = typer.Argument([], help="Sets; default those that are on this machine."),
) -> None:
    """Read the files and compare them with the published checksums; exit with 1 if a set is not intact."""


class _Predict(TyperGroup):
    """The topics, which load on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        from linnet.cli.models import TOPICS

        return list(TOPICS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from linnet.cli import predict

        return typer.main.get_group(predict.app).get_command(ctx, cmd_name)


app.add_typer(
    typer.Typer(cls=_Predict, help="What theory predicts for a given network before it is trained."), name="predict"
)
