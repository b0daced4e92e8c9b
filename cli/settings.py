"""Where does the value of an option come from? Command line, environment, files, default: in order.

Click's own mechanism does it: each option has the environment variables `BLEND_<COMMAND>_<OPTION>`
and `BLEND_<OPTION>`, and what the settings files say is the command's `default_map`.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from blend.cli.console import err, inert
from blend.cli.misuse import misuse
from blend.cli.settings_file import ARGUMENT, Setting, SettingsFile
from blend.cli.switches import bare
from blend.core.errors import BlendError

FILES = "blend.settings.files"
"""Under which the settings files stand in the meta of a click context."""

INTERNAL = frozenset({"BLEND_PACE", "BLEND_PROFILES", "BLEND_CONFIG", "BLEND_ARGS"})
"""What means something else than an option of a command."""

_SAYS_SO = frozenset({"run", "plan", "execute"})
_NO_SETTING = frozenset({"help", "version", "config"})


class SettingsCommand(TyperCommand):
    """A command whose options are set by the environment and by settings files, too."""

    def __init__(self, name: str | None, **given: Any):
        super().__init__(name, **given)
        for option in settable(self):
            option.envvar = variables(name or "", option)
            option.show_envvar = False

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` among them."""
        return bare(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse *args*; BlendError names the file or variable that a bad value stands in."""
        found = settings_of(self, ctx.meta.get(FILES, ()))
        ctx.default_map = default_map(self, found)
        try:
            left = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if elsewhere := explained(error, found, self.name or ""):
                raise elsewhere from error
            raise
        if ARGUMENT in found and _source(ctx, "engine_arg") != "DEFAULT_MAP":
            # The words of the command line stand beside those of the files; of one name they win.
            ctx.params["engine_arg"][:0] = ctx.default_map["engine_arg"]
        return left

    def make_parser(self, ctx: Any) -> Any:
        """Let every switch be taken back, too: one that is set elsewhere could not be otherwise."""
        parser = super().make_parser(ctx)
        for option in settable(self):
            if (back := opposite(option)) is not None:
                parser.add_option(
                    obj=option, opts=[back], dest=option.name, action="store_const", const=False
                )
        return parser

    def invoke(self, ctx: Any) -> Any:
        """Run the command, in silence where that is asked for; say which settings it took."""
        quiet_before, err.quiet = err.quiet, bool(ctx.params.get("quiet"))
        try:
            if self.name in _SAYS_SO and (said := _said(self, ctx)):
                err.print(f"settings: {inert(said)}")
            return super().invoke(ctx)
        finally:
            err.quiet = quiet_before


def settable(command: TyperCommand) -> Iterator[TyperOption]:
    """Yield the options of a command that can be set elsewhere than on the command line."""
    for one in command.params:
        if isinstance(one, TyperOption) and one.name not in _NO_SETTING:
            yield one


def long_name(option: TyperOption) -> str:
    """Return the long name of an option without its dashes: its key in a settings file."""
    return next(one[2:] for one in option.opts if one.startswith("--"))


def opposite(option: TyperOption) -> str | None:
    """Return what takes a switch back on the command line, as `--no-overwrite`; None for others.

    A switch that says no is taken back without it: `--sample`.
    """
    if not option.is_bool_flag:
        return None
    name = long_name(option)
    return f"--{name[3:]}" if name.startswith("no-") else f"--no-{name}"


def variables(command: str, option: TyperOption) -> list[str]:
    """Return the environment variables that set an option, the first before the others."""
    name = long_name(option).upper().replace("-", "_")
    own = option.envvar or []
    names = [f"BLEND_{command.upper()}_{name}", f"BLEND_{name}"]
    return [*(one for one in names if one not in own), *([own] if isinstance(own, str) else own)]


def settings_of(command: TyperCommand, files: Iterable[SettingsFile]) -> dict[str, list[Setting]]:
    """Return what *files*, the first before the others, say of each option of a command.

    One setting each; of `engine-arg` all, the ones that count more last. BlendError for a value of
    a wrong type.
    """
    options = {long_name(option): option for option in settable(command)}
    found: dict[str, list[Setting]] = {}
    arguments: list[Setting] = []
    for file in reversed(list(files)):
        own = file.of(command.name or "", options)
        for name, setting in own.items():
            _refuse_type(options[name], setting)
        if ARGUMENT in options:
            arguments += file.engine_arguments(options).values()
        if ARGUMENT in own:
            arguments.append(own.pop(ARGUMENT))
        found |= {name: [setting] for name, setting in own.items()}
    return found | ({ARGUMENT: arguments} if arguments else {})


def default_map(command: TyperCommand, found: Mapping[str, Sequence[Setting]]) -> dict[str, Any]:
    """Return what click takes for the options of a command that are not given."""
    defaults: dict[str, Any] = {}
    for option in settable(command):
        settings = found.get(long_name(option))
        if settings and long_name(option) == ARGUMENT:
            defaults[option.name] = [word for one in settings for word in _words(one)]
        elif settings:
            defaults[option.name] = settings[-1].value
    return defaults


def _words(setting: Setting) -> list[str]:
    """Return a setting of the engine as words for `--engine-arg`."""
    value, key = setting.value, setting.key
    if key == ARGUMENT and isinstance(value, list):
        return value
    if isinstance(value, bool):
        return [key if value else f"no-{key}"]
    return [f"{key}={value if isinstance(value, str) else json.dumps(value, default=str)}"]


def _refuse_type(option: TyperOption, setting: Setting) -> None:
    value = setting.value
    if option.multiple:
        expected = "a list of texts in quotes"
        right = isinstance(value, list) and all(isinstance(one, str) for one in value)
    elif option.is_bool_flag:
        expected, right = "true or false", isinstance(value, bool)
    elif option.type_descriptor.annotation is int:
        expected, right = "a whole number", type(value) is int
    elif option.type_descriptor.annotation is float:
        expected, right = "a number", type(value) in (int, float)
    else:
        expected, right = "a text in quotes", isinstance(value, str)
    if not right:
        shown = json.dumps(value, default=str, ensure_ascii=False)
        raise BlendError(
            f"{setting.place}: `{setting.name}` must be {expected}: {shown}",
            hint=f"`--{setting.key}`: {option.help}",
        )


def explained(
    error: typer.BadParameter, found: Mapping[str, Sequence[Setting]], command: str
) -> BlendError | None:
    """Return *error* as one of the file or variable that the value stands in; None for others."""
    option, ctx = error.param, error.ctx
    if not isinstance(option, TyperOption) or ctx is None:
        return None
    source = _source(ctx, option.name)
    if source == "DEFAULT_MAP":
        setting = found[long_name(option)][-1]
        subject = f"{setting.place}: `{setting.name}`"
    elif source == "ENVIRONMENT":
        subject = f"the environment variable {variable_of(option)}"
    else:
        return None
    message, _ = misuse(error, subject=subject)
    hint = f"`blend {command} --help` says what `--{long_name(option)}` takes"
    return BlendError(message, hint=hint)


def variable_of(option: TyperOption) -> str | None:
    """Return the environment variable that sets an option now; None where none does."""
    names = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
    return next((one for one in names if os.environ.get(one)), None)


def _source(ctx: Any, name: str) -> str:
    """Return click's name of where a value comes from; typer does not give out the enumeration."""
    source = ctx.get_parameter_source(name)
    return source.name if source else ""


def _said(command: TyperCommand, ctx: typer.Context) -> str:
    """Return which options are set where, without those of the command line and the defaults."""
    found = settings_of(command, ctx.meta.get(FILES, ()))
    by_place: dict[str, list[str]] = {}
    for option in settable(command):
        name, source = long_name(option), _source(ctx, option.name)
        places = []
        if source == "ENVIRONMENT":
            places = [one for one in [variable_of(option) or ""] if one.startswith("BLEND_")]
        if name in found and (source == "DEFAULT_MAP" or name == ARGUMENT):
            places.append(found[name][-1].path)
        for place in places:
            by_place.setdefault(place, []).append(name)
    return "; ".join(f"{', '.join(names)} from {place}" for place, names in by_place.items())
