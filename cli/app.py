"""The `blend` command: its subcommands, and what becomes of an error."""

import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from blend.cli.commands import COMMANDS, add_commands
from blend.cli.completion import completed_words
from blend.cli.console import print_error, told
from blend.cli.interrupt import interrupted_by_sigterm
from blend.cli.misuse import misuse
from blend.cli.settings import FILES
from blend.cli.settings_file import read_settings, settings_paths
from blend.cli.switches import CommandGroup
from blend.core.errors import RESUMABLE, USAGE, BlendError

INTERRUPTED = 130

_REFUSED_BY_SYSTEM = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}
"""What a person can repair; any other refusal is a fault of ours and keeps its traceback."""


def blend_app(words: Sequence[str]) -> typer.Typer:
    """Return the command line for these words: all commands, those among the words imported."""
    app = typer.Typer(
        name="blend",
        cls=CommandGroup,
        help="Plan and run offline LLM batch jobs: compute-bound work blended with memory-bound.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    help_asked = bool({"-h", "--help"}.intersection(words))

    @app.callback()
    def options(
        ctx: typer.Context,
        config: Annotated[
            Path | None,
            typer.Option(
                metavar="PATH",
                envvar="BLEND_CONFIG",
                help="Settings file; the nearest blend.toml of this folder and those above if "
                "absent.",
            ),
        ] = None,
        version: Annotated[  # noqa: ARG001 - its callback has ended the command
            bool,
            typer.Option(
                "--version", callback=_version, is_eager=True, help="Print the version and exit."
            ),
        ] = False,
    ) -> None:
        """Plan and run offline LLM batch jobs."""
        # The help has to be there for whoever mends a settings file.
        with suppress(BlendError) if help_asked else nullcontext():
            ctx.meta[FILES] = tuple(map(read_settings, settings_paths(config)))

    add_commands(app, completed_words() or words)
    return app


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"blend {version('blend-batch')}")  # noqa: T201 - stdout is the answer
        raise typer.Exit


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (0, 1 … 6 or 130)."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with interrupted_by_sigterm(), told():
            code = blend_app(words)(args=words, prog_name="blend", standalone_mode=False)
    except BlendError as error:
        print_error(error.message, error.hint)
        return error.exit_code
    except TyperException as error:
        _print_misuse(error, words)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our stdout has gone; nothing is left to say to it.
        return 1
    except OSError as error:
        if error.errno not in _REFUSED_BY_SYSTEM:
            raise
        return _refused(error)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        print_error("interrupted", "what was saved stays; the same command again goes on")
    return int(code or 0)


def command() -> NoReturn:
    """Be the process of one command."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that knows only ASCII must not end a command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = main()
    try:
        sys.stdout.flush()
    except OSError:
        # What cannot be written has been said; the interpreter would try again and exit with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _print_misuse(error: TyperException, words: Sequence[str]) -> None:
    # Without a message the help has been printed: no command was given.
    if error.format_message():
        command = next((f"blend {word}" for word in words if word in COMMANDS), "blend")
        message, meant = misuse(error)
        if getattr(error, "option_name", None) == "--config":
            meant = f"`--config` stands before the command: `blend --config PATH {command[6:]}`"
        print_error(message, meant or f"`{command} --help` lists what it takes")


def _refused(error: OSError) -> int:
    """Say what the system would not do, and return the exit code for it."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    print_error(
        f"{error.filename or 'input or output'}: {error.strerror}",
        "free some space and run the same command again; what was saved stays"
        if full
        else "check the path, its permissions and its disk",
    )
    return RESUMABLE if full else USAGE


if __name__ == "__main__":
    command()
