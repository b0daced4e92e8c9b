"""What does a `blend.toml` say, where, and is it something that `blend` knows?

Top-level keys are for every command that has such an option, a table named like a command for that
command, and `[engine-args]` for the engine. Keys are the long names of the options.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from blend.cli.option_names import OPTION_NAMES
from blend.core.errors import BlendError
from blend.core.utf8 import as_utf8

FILE_NAME = "blend.toml"
ENGINE_ARGS = "engine-args"
ARGUMENT = "engine-arg"
SECRETS = frozenset({"api-key", "hf-token"})

_WHERE = re.compile(r"(.*) \(at line (\d+), column (\d+)\)")
_HEADER = re.compile(r"\s*\[\s*[\"']?([^\[\]\"']+?)[\"']?\s*\]")
_DOCUMENT = re.compile(r"(.*) \(at end of document\)")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of a settings file: its table, empty for the top level, key, and place.

    ``path`` is as a person would write it, ``line`` 1-based and None where it was not found.
    """

    value: object
    table: str
    key: str
    path: str
    line: int | None = None

    @property
    def name(self) -> str:
        """The key with its table, as `run.policy`."""
        return f"{self.table}.{self.key}" if self.table else self.key

    @property
    def place(self) -> str:
        """The file, and the line where it is known."""
        return self.path if self.line is None else f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The settings of one file, by table and key."""

    path: str
    tables: Mapping[str, Mapping[str, Setting]]

    def of(self, command: str, options: Collection[str]) -> dict[str, Setting]:
        """Return what the file says of *options* of a command, by option.

        The command's own table goes before `[engine-args]`, and that before the top level.
        """
        found: dict[str, Setting] = {}
        for table in ("", ENGINE_ARGS, command):
            found |= self.tables.get(table, {})
        return {name: setting for name, setting in found.items() if name in options}

    def engine_arguments(self, options: Collection[str]) -> dict[str, Setting]:
        """Return what `[engine-args]` says beside the options of a command."""
        given = self.tables.get(ENGINE_ARGS, {})
        return {name: setting for name, setting in given.items() if name not in options}


def settings_paths(named: Path | None) -> list[Path]:
    """Return the settings files that count here, the first before the second.

    The one that is *named*, else the nearest in the current folder and those above it; then the
    user's own. BlendError where the named one is no file.
    """
    if named is not None and not named.is_file():
        what = "is a directory" if named.is_dir() else "no such settings file"
        raise BlendError(
            f"{what}: {as_utf8(str(named))}",
            hint="`--config` and `BLEND_CONFIG` name a file such as blend.toml",
        )
    nearest = named or next(_nearest(), None)
    own = user_path()
    found = [nearest] if nearest else []
    if own and os.path.isfile(own) and not any(own.samefile(one) for one in found):  # noqa: PTH113 - Path.is_file raises where it may not look
        found.append(own)
    return found


def _nearest() -> Iterator[Path]:
    try:
        here = Path.cwd()
    except OSError:  # the folder was removed
        return
    for folder in (here, *here.parents):
        path = folder / FILE_NAME
        if os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises where it may not look
            yield path


def user_path() -> Path | None:
    """Return where a user's own settings lie; None for a user without a home."""
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    try:
        return folder.expanduser() / "blend" / FILE_NAME
    except RuntimeError:
        return None


def read_settings(path: Path) -> SettingsFile:
    """Return what the file says; BlendError for what is no TOML and for unknown tables and keys."""
    shown = as_utf8(shown_path(path))
    try:
        text = path.read_text("utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise BlendError(
            f"cannot read {shown}: {error.strerror}",
            hint="check its permissions, or name another with `--config`",
        ) from error
    except UnicodeDecodeError as error:
        raise BlendError(
            f"{shown}: not UTF-8: {error.reason}", hint="save it as UTF-8 text"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(shown, str(error)) from None
    tables: dict[str, dict[str, Setting]] = {"": {}}
    for name, value in document.items():
        if not isinstance(value, dict):
            key = _dashed(name)
            tables[""][key] = Setting(value, "", key, shown, _line(text, "", name))
            continue
        table = _dashed(name)
        tables[table] = {
            _dashed(key): Setting(one, table, _dashed(key), shown, _line(text, name, key))
            for key, one in value.items()
        }
        _refuse_table(table, shown, _line(text, name, None))
    for settings in tables.values():
        for setting in settings.values():
            _refuse(setting)
    return SettingsFile(shown, tables)


def shown_path(path: Path) -> str:
    """Return a path as short as it can be written from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _not_toml(path: str, error: str) -> BlendError:
    hint = 'a line is [table] or key = value, texts in quotes: policy = "auto"'
    if found := _WHERE.fullmatch(error):
        what, line, column = found.groups()
        return BlendError(f"{path}:{line}:{column}: not TOML: {_lower(what)}", hint=hint)
    if found := _DOCUMENT.fullmatch(error):
        error = f"{found[1]} at the end"
    return BlendError(f"{path}: not TOML: {_lower(error)}", hint=hint)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _refuse_table(table: str, path: str, line: int | None) -> None:
    known = (*OPTION_NAMES, ENGINE_ARGS)
    if table not in known:
        place = path if line is None else f"{path}:{line}"
        raise BlendError(
            f"{place}: unknown table: [{table}]",
            hint=nearest_hint(table, known, form="[{}]")
            or f"tables are {', '.join(f'[{one}]' for one in known)}",
        )


def _refuse(setting: Setting) -> None:
    if setting.key in SECRETS:
        raise BlendError(
            f"{setting.place}: a secret does not belong in a settings file: `{setting.name}`",
            hint="set it in the environment: OPENAI_API_KEY or BLEND_API_KEY"
            if setting.key == "api-key"
            else "set it in the environment: HF_TOKEN",
        )
    if setting.table == ENGINE_ARGS:
        return
    known = OPTION_NAMES.get(setting.table) or sorted({k for n in OPTION_NAMES.values() for k in n})
    if setting.key not in known:
        of = f"`blend {setting.table}`" if setting.table else "any command"
        raise BlendError(
            f"{setting.place}: unknown key: `{setting.name}` is no option of {of}",
            hint=nearest_hint(setting.key, known, form="`{}`")
            or (f"{of} takes {', '.join(known)}" if setting.table else "`blend config` lists all"),
        )


def nearest_hint(name: str, known: Collection[str], *, form: str) -> str | None:
    """Return which of the *known* names is meant, None where none is like it."""
    like = difflib.get_close_matches(name, known, 1)
    return f"did you mean {form.format(like[0])}?" if like else None


def _line(text: str, table: str, key: str | None) -> int | None:
    """Return the line of a key, or of a table's own header; None where it is not found."""
    key_name, table_name = re.escape(key or ""), re.escape(table)
    below = re.compile(rf"\s*[\"']?{key_name}[\"']?\s*=")
    dotted = re.compile(rf"\s*[\"']?{table_name}[\"']?\s*\.\s*[\"']?{key_name}\b")
    at = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header:
            at = header[1]
        if at == table and (header if key is None else below.match(line)):
            return number
        if table and not at and dotted.match(line):
            return number
    return None
