"""`linnet predict`: one command for each input model of `linnet.cli.models`."""

import inspect
import types
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from linnet._files import dumps, placed
from linnet._input import InputError
from linnet._schema import sentence
from linnet.cli import typed
from linnet.cli.models import TOPICS, Topic, alone

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False)


def add_command(name: str, model: type[Topic]) -> None:
    """Adds the command of a model: its fields as options, and `--run`, `--plot`, `--json`."""

    def command(run: bool, plot: Path | None, as_json: bool, **options: Any) -> None:
        typed.picture(plot)
        try:
            topic = model(**options)
        except ValidationError as error:
            raise InputError(sentence(error)) from None
        answer(topic, run, plot, as_json)

    common = [
        _parameter("run", bool, False, typer.Option("--run", help=model.run_help)),
        _parameter("plot", Path | None, None, typer.Option(help=model.plot_help)),
        _parameter("as_json", bool, False, typer.Option("--json", help="Print the prediction as JSON.")),
    ]
    fields = [_option(name, field, name == model.argument) for name, field in model.model_fields.items()]
    command.__signature__ = inspect.Signature([*fields, *common])  # type: ignore[attr-defined]
    app.command(name, help=inspect.getdoc(model))(command)


def answer(topic: Topic, run: bool, plot: Path | None, as_json: bool) -> None:
    """Predicts, measures with `run`, draws to `plot`, and prints."""
    from linnet.cli.bar import bar

    if getattr(topic, "show", False):
        for name, given in (("run", run), ("plot", plot), ("json", as_json)):
            if given:
                raise alone(name)
    result: Any = topic.predict()
    if run:
        with bar(topic.measured, quiet=as_json) as progress:
            result = result.measure(progress=progress)
    if plot is not None:
        with placed(plot) as partial:
            result.plot().savefig(partial)
    if as_json:
        typer.echo(dumps(result.to_dict() | ({} if plot is None else {"figure": str(plot)})))
    else:
        from rich.console import Console

        Console().print(result, highlight=False)


def _option(name: str, field: FieldInfo, argument: bool) -> inspect.Parameter:
    """A field as an option: numbers, paths, and flags are parsed here, anything else is text for the model."""
    default = inspect.Parameter.empty if field.is_required() else field.default
    if argument:
        return _parameter(name, str | None, default, typer.Argument(help=field.description))
    names = [mark for mark in field.metadata if isinstance(mark, str)]  # such as --half/--whole
    kind, optional = _kind(field.annotation)
    options: dict[str, Any] = {"help": field.description}
    if kind is int:
        options |= {"parser": typed.count, "metavar": "INTEGER"}
    elif kind is bool:
        names = names or [f"--{name.replace('_', '-')}"]
    return _parameter(name, kind | None if optional else kind, default, typer.Option(*names, **options))


def _kind(annotation: Any) -> tuple[Any, bool]:
    """The type of an option, and whether it may be left out."""
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    kinds = [part for part in parts if part is not types.NoneType]
    return kinds[0] if len(kinds) == 1 and kinds[0] in (int, float, bool, Path) else str, len(kinds) < len(parts)


def _parameter(name: str, kind: Any, default: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


for _name, _model in TOPICS.items():
    add_command(_name, _model)
