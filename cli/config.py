"""`blend config`: which settings are in force, and where each comes from."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from blend.cli.commands import COMMANDS, add_commands
from blend.cli.completion import commands
from blend.cli.console import inert, out, paged, print_json
from blend.cli.options import JsonOption
from blend.cli.settings import (
    FILES,
    INTERNAL,
    default_map,
    explained,
    long_name,
    opposite,
    settable,
    settings_of,
    variable_of,
)
from blend.cli.settings_file import (
    ARGUMENT,
    FILE_NAME,
    SECRETS,
    SettingsFile,
    nearest_hint,
    user_path,
)
from blend.core.errors import BlendError

HIDDEN = "***"
Source = Literal["file", "environment", "default"]


@dataclass(frozen=True, slots=True)
class Effective:
    """What an option of a command is when the command line says nothing of it.

    ``origin``: the file with line and key, or the variable; None for a default. ``taken_back_by``:
    the word that takes a switch back; None for what is no switch.
    """

    command: str
    option: str
    value: Any
    source: Source
    origin: str | None
    variables: tuple[str, ...]
    taken_back_by: str | None


def every_command() -> dict[str, TyperCommand]:
    """Return all commands of `blend`, imported."""
    app = typer.Typer()
    add_commands(app, COMMANDS)
    group: Any = typer.main.get_command(app)
    commands: dict[str, TyperCommand] = group.commands
    return commands


def effective(command: TyperCommand, files: Sequence[SettingsFile]) -> Iterator[Effective]:
    """Yield what each option of *command* is; BlendError for a value that it does not take."""
    name = command.name or ""
    found = settings_of(command, files)
    defaults = default_map(command, found)
    context = typer.Context(command, info_name=name, default_map=defaults)
    for option in settable(command):
        key, variable = long_name(option), variable_of(option)
        settings = found.get(key, ())
        value, by = option.consume_value(context, {})
        context.set_parameter_source(option.name, by)
        if value is not None:
            try:
                value = option.process_value(context, value)
            except typer.BadParameter as error:
                error.ctx, error.param = context, option
                raise explained(error, found, name) or error from error
        origins = [f"{one.place} `{one.name}`" for one in settings]
        source: Source = "environment" if variable else "file" if settings else "default"
        if variable and key == ARGUMENT and settings:
            value = [*defaults[option.name], *value]
            origins.append(variable)
        elif variable:
            origins = [variable]
        yield Effective(
            name,
            key,
            _shown(key, value),
            source,
            ", ".join(dict.fromkeys(origins)) or None,
            tuple(option.envvar or ()),
            opposite(option),
        )


def _shown(key: str, value: Any) -> Any:
    if key in SECRETS and value:
        return HIDDEN
    if isinstance(value, list | tuple):
        return [_without_secret(str(one)) for one in value] or None
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _without_secret(word: str) -> str:
    name = word.partition("=")[0]
    return f"{name}={HIDDEN}" if name.lstrip("-").replace("_", "-") in SECRETS else word


def unknown_variables(found: Iterable[Effective]) -> list[str]:
    """Return the variables of the environment that look like settings and are none."""
    known = {name for one in found for name in one.variables} | INTERNAL
    return sorted(name for name in os.environ if name.startswith("BLEND_") and name not in known)


def config_command(
    ctx: typer.Context,
    command: Annotated[
        str | None,
        typer.Argument(
            metavar="COMMAND", help="Show every option of this command.", autocompletion=commands
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the settings in force, and the file, variable or default that each comes from."""
    files: tuple[SettingsFile, ...] = ctx.meta.get(FILES, ())
    if command is not None and command not in COMMANDS:
        raise BlendError(
            f"no such command: {command}",
            hint=nearest_hint(command, list(COMMANDS), form="`blend config {}`")
            or f"commands are {', '.join(COMMANDS)}",
        )
    settings = [one for each in every_command().values() for one in effective(each, files)]
    unknown = unknown_variables(settings)
    asked = [one for one in settings if command in (None, one.command)]
    if as_json:
        print_json(
            {
                "files": [file.path for file in files],
                "options": [asdict(one) for one in asked],
                "unknown_variables": unknown,
            }
        )
        return
    with paged():
        _draw(asked, files, unknown, whole=command is not None)


def _draw(
    asked: Sequence[Effective],
    files: Sequence[SettingsFile],
    unknown: Sequence[str],
    *,
    whole: bool,
) -> None:
    _draw_files(files, unknown)
    shown = asked if whole else [one for one in asked if one.source != "default"]
    if not shown:
        out.print("every option has its default")
    elif whole:
        _print([(one.option, _in_words(one.value), one.origin or "default") for one in shown])
    else:
        together: dict[tuple[str, str, str], list[str]] = {}
        for one in shown:
            key = (one.option, _in_words(one.value), one.origin or "")
            together.setdefault(key, []).append(one.command)
        _print([(o, v, f"{at}: {', '.join(of)}") for (o, v, at), of in together.items()])
    _draw_ways_back(shown)
    if not whole:
        out.print("next: `blend config COMMAND` shows all options of one")


def _draw_files(files: Sequence[SettingsFile], unknown: Sequence[str]) -> None:
    for file in files:
        out.print(f"file: {inert(file.path)}")
    if not files:
        out.print(f"no {FILE_NAME} in this folder or above it, nor {inert(str(user_path()))}")
    for name in unknown:
        out.print(f"variable that names no option: {inert(name)}")


def _draw_ways_back(shown: Sequence[Effective]) -> None:
    for back, name in {one.taken_back_by: one.option for one in shown if one.value}.items():
        if back:
            out.print(f"`{back}` on the command line takes {name} back")


def _print(lines: Sequence[tuple[str, str, str]]) -> None:
    named = max(len(option) for option, _, _ in lines)
    wide = min(max(len(value) for _, value, _ in lines), 24)
    for option, value, place in lines:
        out.print(inert(f"{option:<{named}}  {value:<{wide}}  {place}"))


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
