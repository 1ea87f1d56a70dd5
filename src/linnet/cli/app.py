"""The commands. Heavy rooms are imported inside them, so that help is instant."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linnet._files import dumps, placed
from linnet._programs import cache_programs
from linnet._version import __version__
from linnet.cli import typed

if TYPE_CHECKING:
    from linnet.predict import Answer, Prediction

app = typer.Typer(
    name="linnet",
    help="A laboratory for the training dynamics of linear networks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _count(text: str) -> Any:
    """An option for a whole number, typed as 1000000, 1_000_000 or 1e6."""
    return typer.Option(help=text, parser=typed.count, metavar="INTEGER")


Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Plot = Annotated[Path | None, typer.Option(help="Draw it to this file (.png, .svg or .pdf).")]
Data = Annotated[
    Path | None,
    typer.Option(help="Samples as rows: .csv, .tsv, .txt or .dat, .npz (X and y, inputs and labels), .npy, .parquet."),
]
Spectrum = Annotated[
    str | None, typer.Option(help="Or whitened inputs and a target of these singular values, such as 3,2,1.")
]
Inputs = Annotated[
    str | None,
    typer.Option(
        help="Input dimension with --spectrum, default the number of modes; of a file names of columns, default all "
        "that are not labels."
    ),
]
Outputs = Annotated[
    str | None,
    typer.Option(
        help="Output dimension with --spectrum, default the number of modes; of a file how many last columns are "
        "labels, default 1, or their names, such as price,area."
    ),
]
Samples = Annotated[
    int | None, _count("Samples n with --spectrum, so that X^T X = n I; default X = I: loss 1/2 |A - Z|^2.")
]
Standardise = Annotated[
    bool, typer.Option("--standardise", help="Give each input column mean 0 and variance 1; constant ones become 0.")
]
Center = Annotated[bool, typer.Option("--center", help="Subtract the column means of inputs and labels.")]
Intercept = Annotated[bool, typer.Option("--intercept", help="Append a column of ones to the inputs.")]
Frozen = Annotated[
    Path | None, typer.Option(help="With --data a frozen W_0 beside the network: labels become Y - X W_0^T.")
]
Start = Annotated[
    str | None,
    typer.Option(
        help="gaussian (default), one-zero or balanced; or as PyTorch has it kaiming_uniform, kaiming_normal, "
        "xavier_uniform, xavier_normal, torch_linear (what nn.Linear does), lora (that, and a second factor zero)."
    ),
]
Beta = Annotated[float | None, typer.Option(help="Momentum b, from 0 to below 1: v <- b v + g.")]
Nesterov = Annotated[bool, typer.Option("--nesterov", help="Nesterov's momentum: step along g + b v.")]
Averaged = Annotated[bool, typer.Option("--averaged", help="Averaged momentum, as in Adam: v <- b v + (1 - b) g.")]
Decay = Annotated[float | None, typer.Option(help="Weight decay mu, of the loss + mu/2 times all squared weights.")]
Decoupled = Annotated[bool, typer.Option("--decoupled", help="Decay beside the gradient, as in AdamW.")]
Average = Annotated[
    bool, typer.Option("--average", help="Loss 1/(2n) sum of squares instead of 1/2 sum of squares, with --data.")
]


def _tell(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(dumps(result))


def _answer(prediction: "Prediction", run: bool, plot: Path | None, as_json: bool, text: str = "exact run") -> None:
    """Measures, draws and prints a prediction, as asked."""
    from linnet.cli.bar import bar

    result: Answer = prediction
    if run:
        with bar(text, quiet=as_json) as progress:
            result = prediction.measure(progress=progress)
    if plot is not None:
        with placed(plot) as partial:
            result.plot().savefig(partial)
    if as_json:
        typer.echo(dumps(result.to_dict() | ({} if plot is None else {"figure": str(plot)})))
    else:
        from rich.console import Console

        Console().print(result, highlight=False)


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
    cache_programs()


@app.command()
def demo(
    d: Annotated[int, _count("Dimension of the matrix to recover.")] = 300,
    rank: Annotated[int, _count("Rank of the signal.")] = 5,
    gamma_w: Annotated[float, typer.Option(help="The network has d^gamma_w hidden neurons.")] = 2.25,
    gamma_sigma2: Annotated[float, typer.Option(help="Weights start with variance d^gamma_sigma2.")] = -1.85,
    steps: Annotated[int, _count("Steps of gradient descent.")] = 420,
    seed: Annotated[int, _count("Seed of the target, the noise and the start.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the picture goes (.png, .svg, .pdf) or a film (.gif, .mp4).")] = Path(
        "linnet-demo.png"
    ),
    as_json: Json = False,
) -> None:
    """Train an enormous two-layer network exactly, and draw what it learns.

    Noisy low-rank recovery: the network first learns the signal, then the noise. Its width is a number and costs
    nothing: the neurons are drawn and trained in compressed form.
    """
    from linnet.cli.demo import run

    _tell(run(d, rank, gamma_w, gamma_sigma2, steps, seed, out, quiet=as_json), as_json)


From = Annotated[
    list[str] | None,
    typer.Option("--from", help="A Python file or an installed module with claims and experiments of your own."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="Dask's workers compute: local, local:8, tcp://..., a scheduler file, or a TOML file for a batch system.",
    ),
]


@app.command("list")
def list_(
    wanted: Annotated[
        list[str] | None, typer.Argument(help="Papers or ids, such as mixed or mixed/C6; default all.")
    ] = None,
    sources: From = None,
    as_json: Json = False,
) -> None:
    """Show the papers with their claims, errata and experiments."""
    from linnet.cli.show import listing, show_list

    everything = listing(wanted or [], sources or [])
    if as_json:
        typer.echo(dumps(everything))
    else:
        show_list(everything)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A claim, an erratum or an experiment, such as mixed/C6 or mixed/fig1.")],
    run: Annotated[bool, typer.Option("--run/--no-run", help="Verify a claim and show every finding.")] = True,
    size: Annotated[str, typer.Option(help="quick (seconds) or full (minutes).")] = "quick",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a parameter of a claim: name=value.")
    ] = None,
    sources: From = None,
    as_json: Json = False,
) -> None:
    """Show everything about one claim, erratum or experiment.

    Its place in the paper, the whole statement, hypotheses, parameters, what its sabotage changes, and every finding
    with what was measured and required; of an experiment its parameters at both sizes.
    """
    from linnet.cli.show import show as answer

    _tell(answer(name, size, settings or [], sources or [], run=run, quiet=as_json), as_json)


@app.command()
def verify(
    ids: Annotated[list[str] | None, typer.Argument(help="Claims or errata, such as mixed/C6; default all.")] = None,
    paper: Annotated[str | None, typer.Option(help="Only this paper, such as mixed.")] = None,
    size: Annotated[str, typer.Option(help="quick (seconds each) or full (minutes).")] = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Put the verdicts on the page index.html of this folder too.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a parameter where a claim has it: name=value; linnet show lists them."),
    ] = None,
    sources: From = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Check claims and errata on this machine; exit with 1 if any is not as stated.

    With `--from mine.py` and no ids: those of your file.
    """
    from linnet.cli.verify import exit_code, run

    result = run(ids or [], paper, size, out, settings or [], sources or [], cluster=cluster, quiet=as_json)
    _tell(result, as_json)
    raise typer.Exit(exit_code(result))


@app.command()
def reproduce(
    ids: Annotated[list[str] | None, typer.Argument(help="Experiments, such as mixed/fig1; default all.")] = None,
    size: Annotated[str, typer.Option(help="quick (about a minute each) or paper (as published).")] = "quick",
    out: Annotated[Path, typer.Option(help="Folder for figures, data, verdicts and the page index.html.")] = Path(
        "linnet-report"
    ),
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a parameter: field=value.")] = None,
    claims: Annotated[
        bool | None,
        typer.Option("--claims/--no-claims", help="Verify all claims too, at quick size; default if no ids are given."),
    ] = None,
    sources: From = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Make the papers' figures, with their data and what must hold of them; exit with 1 if anything does not.

    Without ids: the whole report, all figures and all claims (with `--from mine.py` those of your file). What was
    finished before in the same folder with the same parameters and versions is not computed again.
    """
    from linnet.cli.reproduce import exit_code, run

    result = run(
        ids or [],
        size,
        out,
        settings or [],
        claims=claims,
        sources=sources or [],
        cluster=cluster,
        quiet=as_json,
    )
    _tell(result, as_json)
    raise typer.Exit(exit_code(result))


@app.command()
def sweep(
    places: Annotated[
        list[str],
        typer.Argument(metavar="SPEC", help="A TOML file: problem, start, motion, axes, what to store."),
    ],
    out: Annotated[
        str | None,
        typer.Option(help="The zarr store to make or to complete: a folder, s3://..., gs://... or file://..."),
    ] = None,
    part: Annotated[str, typer.Option(help="Compute this part of the chunks only, such as 2/3.")] = "1/1",
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Compute nothing, say what is damaged in the store (--check STORE); exit with 1 if any is."
        ),
    ] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Write a store to one file: --export STORE runs.nc, or runs.parquet.")
    ] = False,
    merge: Annotated[
        bool, typer.Option("--merge", help="Make one store of two of the same grid: --merge FIRST SECOND --out STORE.")
    ] = False,
    cluster: Cluster = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Write nothing, say what it takes: chunks, memory, time from runs measured."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a grid of networks into one labelled store; killed at any moment, the same command goes on.

    Chunks carry checksums: a damaged one is found and computed again. The store opens with `xarray.open_zarr`. How to
    write the file: see docs/sweeps.md.
    """
    from linnet.cli import sweep as command

    result = command.chosen(
        places,
        out,
        part,
        cluster,
        check=check,
        export=export,
        merge=merge,
        dry_run=dry_run,
        quiet=as_json,
    )
    _tell(result, as_json)
    raise typer.Exit(int(bool(result.get("damage"))))


@app.command()
def lab(
    file: Annotated[Path | None, typer.Argument(help="A page's TOML, as the page itself gives it.")] = None,
    room: Annotated[
        str | None, typer.Option(help="The room to open: network, phase, edge, rich, data, landscape.")
    ] = None,
    address: Annotated[str, typer.Option(help="Whom it answers: this machine only, or 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, _count("The port; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open a browser there.")] = True,
) -> None:
    """A page to play with: move a slider and watch a network become lazy, rich or chaotic.

    Everything it shows can be taken away: the Python lines that make it, its data, pictures, films, and the address.
    Needs `pip install 'linnet[lab]'`.
    """
    from linnet.cli.lab import run

    run(file, room, address, port, browser)


@app.command()
def probe(
    folder: Annotated[Path, typer.Argument(help="The folder that `linnet.probe.Probe(..., folder=...)` writes to.")],
    out: Annotated[Path | None, typer.Option(help="Draw it to this file (.png, .svg or .pdf).")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page, index.html, into this folder.")] = None,
    as_json: Json = False,
) -> None:
    """What a probe has seen of a PyTorch training: whether it is at its edge, and what became of the layers.

    Reads the record of a finished, a killed or a running one; PyTorch is not needed.
    """
    from linnet.cli.probe import run

    typed.picture(out)
    _tell(run(folder, out, report, quiet=as_json), as_json)


sets = typer.Typer()
app.add_typer(sets, name="data")


@sets.callback(invoke_without_command=True)
def data_(context: typer.Context, as_json: Json = False) -> None:
    """Published sets of images (MNIST, Fashion-MNIST, CIFAR-10, digits): where they are and whether they are whole.

    They are looked for in the folder that the environment variable LINNET_DATA names, with folders mnist, fashion and
    cifar10 in it, then in the user's cache.
    """
    if context.invoked_subcommand is None:
        from linnet.cli import data as command

        _tell(command.listed([], quiet=as_json), as_json)


@sets.command("fetch")
def fetch_(
    names: Annotated[list[str], typer.Argument(help="mnist, fashion, cifar10.")],
    as_json: Json = False,
) -> None:
    """Fetch sets from their published addresses, into LINNET_DATA's folder or else the user's cache.

    Every file is checked by its checksum; what is there and whole is not fetched again. Needs `pip install pooch`.
    """
    from linnet.cli import data as command

    _tell(command.fetch(names, quiet=as_json), as_json)


@sets.command("check")
def check_(
    names: Annotated[list[str] | None, typer.Argument(help="Sets; default those that are on this machine.")] = None,
    as_json: Json = False,
) -> None:
    """Read the files and compare them with the published checksums; exit with 1 if a set is not whole."""
    from linnet.cli import data as command

    result = command.listed(names or [], quiet=as_json)
    _tell(result, as_json)
    raise typer.Exit(command.exit_code(result, names or []))


predict = typer.Typer(help="What theory says about a given network, before anyone trains it.", no_args_is_help=True)
app.add_typer(predict, name="predict")


@predict.command()
def phase(
    gamma_w: Annotated[float, typer.Option(help="The network has d^gamma_w hidden neurons.")],
    gamma_sigma2: Annotated[float, typer.Option(help="Weights start with variance d^gamma_sigma2.")],
    d: Annotated[int, _count("Dimension of the matrix to recover.")],
    rank: Annotated[int, _count("Rank of the signal.")] = 5,
    levels: Annotated[
        str | None, typer.Option(help="Singular values of the signal over d, such as 1,0.8; default those of the seed.")
    ] = None,
    c_lr: Annotated[float, typer.Option(help="A step is 1/c_lr of the fastest mode's time.")] = 50.0,
    seed: Annotated[int, _count("Seed of the target, the noise and the start.")] = 0,
    run: Annotated[bool, typer.Option("--run", help="Make the exact run too and show the errors.")] = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Lazy or rich? Where a two-layer network lies, when it learns each signal, when to stop and what it reaches.

    The setting is noisy low-rank recovery: A* + E with d x d entries of unit variance each, loss |A - A* - E|^2 / d^2.
    """
    from linnet.predict import phase as ask

    typed.picture(plot)
    given = None if levels is None else typed.numbers("levels", levels, example="1,0.8")
    found = ask(d=d, gamma_w=gamma_w, gamma_sigma2=gamma_sigma2, rank=rank, levels=given, c_lr=c_lr, seed=seed)
    _answer(found, run, plot, as_json)


@predict.command()
def bias(
    gamma: Annotated[float, typer.Option(help="Scale of the start: W_1 has singular values sqrt(2 gamma), W_2 = 0.")],
    data: Data = None,
    spectrum: Spectrum = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    samples: Samples = None,
    standardise: Standardise = False,
    center: Center = False,
    intercept: Intercept = False,
    width: Annotated[int | None, _count("Hidden neurons, at least d_in: nothing else depends on them.")] = None,
    average: Average = False,
    run: Annotated[bool, typer.Option("--run", help="Make the exact flow too and show the errors.")] = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Which predictor does gradient flow find, by which layers, in which order and when? For your own regression.

    A two-layer network from W_1 = sqrt(2 gamma) Q, Q of orthonormal columns, and W_2 = 0. Its predictor is the one of
    minimum norm whatever gamma is; its first layer has low rank if gamma is small. Times are those of gradient flow:
    learning rate times steps. There is no intercept of itself: --center, or --intercept.
    """
    from linnet.predict import bias as ask

    typed.picture(plot)
    how = {"standardise": standardise, "center": center, "intercept": intercept, "average": average}
    problem = typed.regression_of(data, spectrum, inputs, outputs, samples, **how)
    _answer(ask(problem, gamma=gamma, width=width), run, plot, as_json, "exact flow")


@predict.command()
def balance(
    spectrum: Annotated[str, typer.Option(help="Singular values of the target on white inputs, such as 3,2,1.")],
    lam: Annotated[float, typer.Option(help="Imbalance lambda of the layers: W_2^T W_2 - W_1 W_1^T = lambda I.")],
    width: Annotated[
        int | None,
        _count("Hidden neurons, at most --outputs for lambda > 0 and --inputs for lambda < 0, which are the default."),
    ] = None,
    inputs: Annotated[int | None, _count("Input dimension, default the number of modes.")] = None,
    outputs: Annotated[int | None, _count("Output dimension, default the number of modes.")] = None,
    samples: Samples = None,
    scale: Annotated[float | None, typer.Option(help="Scale of the lighter layer at the start; default 0.01.")] = None,
    aligned: Annotated[
        bool, typer.Option("--aligned", help="A start aligned with the target, in place of random frames.")
    ] = False,
    seed: Annotated[int, _count("Seed of the random frames.")] = 0,
    switch: Annotated[
        str,
        typer.Option(help="The task that follows: reversal (Y becomes -Y), or a file of its target, outputs x inputs."),
    ] = "reversal",
    run: Annotated[
        bool, typer.Option("--run", help="Make the exact flow of the layers too and show the errors.")
    ] = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Lazy or rich? What the imbalance of two layers decides: times, kernel, end, and a switch of the task afterwards.

    For two layers with W_2^T W_2 - W_1 W_1^T = lambda I on white inputs, in closed form, exact: when each mode is
    learned, how far the tangent kernel moves, where training ends or gets stuck, and whether it can learn another task
    then. Times are those of gradient flow: learning rate times steps.
    """
    from linnet.predict import balance as ask
    from linnet.predict import whitened

    typed.picture(plot)
    problem = whitened(typed.numbers("spectrum", spectrum), inputs=inputs, outputs=outputs, samples=samples)
    said = ask(problem, lam, width=width, scale=scale, aligned=aligned, seed=seed, switch=switch)
    _answer(said, run, plot, as_json, "exact flow")


@predict.command()
def landscape(
    width: Annotated[str, typer.Option(help="Hidden neurons, such as 3 or 3,4; one number serves all hidden layers.")],
    data: Data = None,
    spectrum: Spectrum = None,
    depth: Annotated[int | None, _count("Layers of the network; default one more than the hidden ones.")] = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    samples: Samples = None,
    standardise: Standardise = False,
    center: Center = False,
    intercept: Intercept = False,
    average: Average = False,
    most: Annotated[int, _count("Show all sets of modes up to so many, else 1 ... k and those of least loss.")] = 64,
    run: Annotated[
        bool, typer.Option("--run", help="Build every point as weights too and show what its whole Hessian says.")
    ] = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Where can training get stuck? The critical points of a deep linear network by the modes they have learned.

    The loss is 1/2 |X A^T - Y|^2 summed over samples. A set of modes stands for its balanced critical point and what
    changes of basis between layers make of it: they share loss, kind and index; lambda_min is the balanced one's.
    """
    from linnet.predict import landscape as ask

    typed.picture(plot)
    how = {"standardise": standardise, "center": center, "intercept": intercept, "average": average}
    problem = typed.regression_of(data, spectrum, inputs, outputs, samples, **how)
    _answer(ask(problem, typed.hidden_widths(depth, width), most=most), run, plot, as_json, "whole Hessians")


@predict.command()
def rates(
    depth: Annotated[int, _count("Layers of the network, 2 or more.")],
    data: Data = None,
    spectrum: Spectrum = None,
    scale: Annotated[float, typer.Option(help="Size of the start over that of the target.")] = 0.01,
    alignment: Annotated[
        float | None,
        typer.Option(help="Product of the start's cosines with the largest mode; default random directions."),
    ] = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    samples: Samples = None,
    standardise: Standardise = False,
    center: Center = False,
    intercept: Intercept = False,
    average: Average = False,
    seed: Annotated[int, _count("Seed of the start's directions.")] = 0,
    run: Annotated[
        bool, typer.Option("--run", help="Make the exact flow of the layers too and show the errors.")
    ] = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """How fast does a deep network learn, far from the target, out of a small start and in the end?

    For a balanced network of any widths with a start of rank one, on whitened data (others are whitened first); loss
    1/2 |X A^T - Y|^2 summed over samples. Times are those of gradient flow: learning rate times steps.
    """
    from linnet.predict import rates as ask

    typed.picture(plot)
    how = {"standardise": standardise, "center": center, "intercept": intercept, "average": average}
    problem = typed.regression_of(data, spectrum, inputs, outputs, samples, **how)
    said = ask(problem, depth=depth, scale=scale, alignment=alignment, seed=seed)
    _answer(said, run, plot, as_json, "exact flow")


@predict.command()
def stability(
    depth: Annotated[int, _count("Layers of the network, 1 to 100.")],
    spectrum: Annotated[str, typer.Option(help="Singular values of the target, such as 10,9,6; zeros left out.")],
    lr: Annotated[
        float | None, typer.Option(help="Step size; default one between the edge of stability and what comes next.")
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            help="one-zero (layers alpha I, the last 0), orthogonal (alpha times rotations, the last 0) or balanced "
            "(alpha I in all layers, for a symmetric target)."
        ),
    ] = "one-zero",
    alpha: Annotated[
        float | None, typer.Option(help="Scale of the start, below the smallest singular value; default a small one.")
    ] = None,
    d: Annotated[int | None, _count("Dimension of the matrices in --run; default the modes.")] = None,
    seed: Annotated[int, _count("Seed of the singular vectors and batches in --run.")] = 0,
    half: Annotated[
        bool, typer.Option("--half/--whole", help="Loss 1/2 |A - A*|^2, or |A - A*|^2 as in the paper's figures.")
    ] = True,
    beta: Beta = 0.0,
    nesterov: Nesterov = False,
    averaged: Averaged = False,
    decay: Decay = 0.0,
    decoupled: Decoupled = False,
    batch: Annotated[
        int | None, _count("Fresh Gaussian samples that a step sees: the largest stable lr with such batches.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Make the exact run of the matrices too and show the errors.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the bifurcation diagram to this file (.png, .svg or .pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """What does a step size do beyond the edge of stability? For a deep factorisation, mode by mode.

    Which modes converge, which oscillate between which values, double their period, become chaotic or diverge; whether
    modes mix and when rounding shows it; whether the layers balance; the largest step that is stable. With momentum or
    decay: where modes rest, which steps are stable, and where this one leads. With batches of fresh samples: which
    steps are stable at the minimum; the modes are told of the loss itself.
    """
    from linnet import predict

    typed.picture(plot)
    values = typed.numbers("spectrum", spectrum, example="10,9,6")
    how: Any = {"beta": beta, "nesterov": nesterov, "averaged": averaged, "decay": decay, "decoupled": decoupled}
    how["batch"] = batch
    said = predict.stability(values, depth=depth, lr=lr, start=start, alpha=alpha, d=d, seed=seed, half=half, **how)
    _answer(said, run, plot, as_json)


@predict.command("features")
def features_(
    width: Annotated[int, _count("Hidden neurons.")],
    v0: Annotated[float, typer.Option(help="Size of the second layer's start, +-v0.")],
    sigma0: Annotated[float, typer.Option(help="Standard deviation of the first layer's start.")],
    samples: Annotated[int | None, _count("Samples n; with --data the first n of the file.")] = None,
    inputs: Annotated[
        str | None, typer.Option(help="Input dimension; with --data names of columns, default all but the label.")
    ] = None,
    outputs: Annotated[
        str | None, typer.Option(help="With --data the name of the label; default the last column.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Step size; default a tenth of the largest stable one.")] = None,
    noise2: Annotated[float | None, typer.Option(help="Variance of the noise on labels; default 0.")] = None,
    teacher: Annotated[
        float | None, typer.Option(help="Norm of the teacher; default that of as many normal numbers as inputs.")
    ] = None,
    data: Data = None,
    standardise: Standardise = False,
    center: Center = False,
    eps: Annotated[
        float | None, typer.Option(help="Loss to be reached, for the paper's assumption; default 1% of the start.")
    ] = None,
    seed: Annotated[int, _count("Seed of the data and the start.")] = 0,
    run: Annotated[bool, typer.Option("--run", help="Make the exact descent too and show it beside.")] = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Does a two-layer network learn features, in which stages and when? Before training, on Gaussian or your own data.

    f = (1/width) X W_1^T v with one output and loss |f - y|^2 / (2n), from W_1 ~ N(0, sigma0^2) and v = +-v0. Your own
    inputs should be centred: --center.
    """
    from linnet._check import InputError
    from linnet.predict import features, gaussian_features, read_regression

    typed.picture(plot)
    if data is not None:
        typed.refuse("--data: the file has its own", noise2=noise2, teacher=teacher)
        own = read_regression(
            data,
            inputs=typed.names("inputs", inputs),
            outputs=typed.columns(outputs),
            samples=samples,
            standardise=standardise,
            center=center,
        )
        found = features(own, width=width, v0=v0, sigma0=sigma0, lr=lr, eps=eps, seed=seed)
    elif samples is None or (size := typed.dimension("inputs", inputs)) is None:
        raise InputError(
            "samples and inputs are missing: give --samples and --inputs, or samples of your own with --data FILE."
        )
    else:
        why = "Gaussian samples: give --data too"
        typed.refuse(why, outputs=outputs, standardise=standardise or None, center=center or None)
        found = gaussian_features(
            samples=samples,
            inputs=size,
            width=width,
            v0=v0,
            sigma0=sigma0,
            noise2=noise2 or 0.0,
            teacher=teacher,
            lr=lr,
            eps=eps,
            seed=seed,
        )
    _answer(found, run, plot, as_json, "exact descent")


@predict.command()
def network(
    file: Annotated[
        str | None,
        typer.Argument(help="A TOML file, or an example: edge, lazy, lora, own-data, small-start."),
    ] = None,
    data: Data = None,
    spectrum: Spectrum = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    standardise: Standardise = False,
    center: Center = False,
    intercept: Intercept = False,
    frozen: Frozen = None,
    depth: Annotated[int | None, _count("Layers; default 2.")] = None,
    width: Annotated[str | None, typer.Option(help="Hidden neurons: one number, or one a hidden layer.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Of an adapter of rank r = width: the product is multiplied by alpha/r.")
    ] = None,
    start: Start = None,
    scale: Annotated[
        str | None, typer.Option(help="Standard deviation of gaussian weights (one, or one a layer), or alpha.")
    ] = None,
    lr: Annotated[str | None, typer.Option(help="Step size, or auto (default): a tenth of the largest stable.")] = None,
    beta: Beta = None,
    nesterov: Nesterov = False,
    averaged: Averaged = False,
    decay: Decay = None,
    decoupled: Decoupled = False,
    batch: Annotated[int | None, _count("Samples a step sees, in --run too: the largest stable lr with them.")] = None,
    signal: Annotated[int | None, _count("How many modes are signal: when to stop before noise.")] = None,
    seed: Annotated[int | None, _count("Seed of a gaussian start.")] = None,
    average: Annotated[
        bool | None, typer.Option("--average/--sum", help="Loss 1/(2n) sum of squares or 1/2 sum of squares (default).")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the file itself, to write one's own from.")] = False,
    run: Annotated[bool, typer.Option("--run", help="Make the exact descent too and show it beside.")] = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Your own network: which modes are lazy or rich, when each is learned, which steps are stable, when to stop.

    A file says what the data, the network, the start and the training are; options change it or stand alone. Starts:
    gaussian layers, one-zero (orthonormal layers times the scale, the last one zero) or balanced (all layers equal,
    along the modes of the target). Every figure comes with the theory it is from and how far its hypotheses hold.
    """
    from linnet.predict import network as answer
    from linnet.predict import read_situation
    from linnet.predict.situation import situation_text

    if show:
        typer.echo(situation_text(file), nl=False)
        return
    typed.picture(plot)
    situation = read_situation(
        file,
        data={
            "file": data,
            "spectrum": None if spectrum is None else typed.numbers("spectrum", spectrum),
            "inputs": typed.columns(inputs),
            "outputs": typed.columns(outputs),
            "standardise": standardise or None,
            "center": center or None,
            "intercept": intercept or None,
            "frozen": frozen,
            "loss": None if average is None else "mean" if average else "sum",
        },
        network={"depth": depth, "width": typed.listed("width", width, whole=True), "alpha": alpha},
        start={"kind": start, "scale": typed.listed("scale", scale), "seed": seed},
        training={
            "lr": lr if lr == "auto" else typed.listed("lr", lr),
            "beta": beta,
            "nesterov": nesterov or None,
            "averaged": averaged or None,
            "decay": decay,
            "decoupled": decoupled or None,
            "batch": batch,
            "signal": signal,
        },
    )
    _answer(answer(situation), run, plot, as_json, "exact descent")
