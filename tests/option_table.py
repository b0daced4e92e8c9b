"""The table of options in docs/configuration.md; `python -m tests.option_table` prints it anew."""

import sys

from typer.core import TyperOption

from blend.cli.config import every_command
from blend.cli.settings import long_name, settable


def options_by_command() -> dict[str, dict[str, TyperOption]]:
    """Return the options of every command that can be set elsewhere, by long name."""
    return {
        name: {long_name(option): option for option in settable(command)}
        for name, command in every_command().items()
    }


def option_table() -> str:
    """Return a line for every option: its key, the commands that have it, what it says."""
    rows: dict[tuple[str, str], list[str]] = {}
    for command, options in options_by_command().items():
        for name, option in options.items():
            rows.setdefault((name, str(option.help)), []).append(command)
    lines = ["| key | tables | meaning |", "|---|---|---|"]
    for (name, text), commands in rows.items():
        lines.append(f"| `{name}` | {', '.join(commands)} | {text} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{option_table()}\n")
