"""Writes docs/cli.md from the declarations of the commands: `python docs/commands.py` (the tests compare)."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import typer

from linnet.cli.app import app

PAGE = Path(__file__).parent / "cli.md"
HEAD = """# Command line

`python docs/commands.py` writes this page from the declarations of the commands.

Every command has `--help`. With `--json` it prints its result as one JSON object and nothing else. Exit codes: 0, as
stated; 1, a check does not hold, for commands that check (`verify`, `reproduce`, `sweep --check`, `data check`); 2, an
input is not allowed, with one sentence on standard error; 130, interrupted with Ctrl-C, after which the same command
resumes.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_group(typer.main.get_command(app), ("linnet",))])


def _group(group: Any, path: tuple[str, ...]) -> Iterator[str]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from _command(command, (*path, name))
            yield from _group(command, (*path, name))
        else:
            yield from _command(command, (*path, name))


def _command(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    """A heading, the usage, the help, and a table of the arguments and options."""
    parameters = [one for one in command.params if one.name != "help"]
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    usage = " ".join([*path, *map(_placeholder, arguments), *["COMMAND"][: hasattr(command, "list_commands")]])
    usage += " [OPTIONS]" * (len(arguments) < len(parameters))
    yield f"## {' '.join(path)}\n\n```console\n$ {usage}\n```\n"
    yield f"{_plain(inspect.cleandoc(command.help or ''))}\n"
    if parameters:
        yield "| option | value | default | meaning |\n|---|---|---|---|"
        yield from map(_row, parameters)
        yield ""


def _placeholder(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper().strip("[]")
    name = name + "..." * (argument.nargs == -1)
    return name if argument.required else f"[{name}]"


def _row(parameter: Any) -> str:
    """One parameter; flags have no value, and what may be left out without one has no default."""
    argument = parameter.param_type_name == "argument"
    names = [_placeholder(parameter)] if argument else [*parameter.opts, *parameter.secondary_opts]
    flag = bool(getattr(parameter, "is_flag", False))
    value = "" if flag or argument else (parameter.metavar or _kind(parameter)).lower()
    shown = parameter.default
    if flag and parameter.secondary_opts and shown is not None:
        shown = parameter.opts[0] if shown else parameter.secondary_opts[0]
    empty = shown is None or shown is False or shown == [] or shown is ... or parameter.required or callable(shown)
    default = "" if empty or str(shown) in ("", "Sentinel.UNSET") else f"`{shown}`"
    meaning = _plain(" ".join((parameter.help or "").split()))
    return f"| {', '.join(f'`{name}`' for name in names)} | {value} | {default} | {meaning} |"


def _plain(text: str) -> str:
    """Text of which Markdown makes no table, no emphasis, and no tag."""
    return text.replace("|", "&#124;").replace("*", "\\*").replace("<", "&lt;")


def _kind(option: Any) -> str:
    """The type of an option's value, of an element if it may be repeated."""
    annotation = option.type_descriptor.annotation
    kind = next((one for one in get_args(annotation) if one is not type(None)), annotation)
    return {str: "text", int: "integer", float: "number", Path: "path"}[kind]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
