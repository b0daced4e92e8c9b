"""The `blend` command: its subcommands, and what becomes of an error."""

import errno
import io
import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from blend.cli.check import check_command
from blend.cli.console import print_error
from blend.cli.execute import execute_command
from blend.cli.export import export_command
from blend.cli.ingest import ingest_command
from blend.cli.plan import plan_command
from blend.cli.run import run_command
from blend.cli.show import show_command
from blend.cli.status import status_command
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

app = typer.Typer(
    name="blend",
    help="Plan and run offline LLM batch jobs, blending compute-bound and memory-bound requests.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", rich_help_panel="All in one")(run_command)
app.command("check", rich_help_panel="Stages")(check_command)
app.command("ingest", rich_help_panel="Stages")(ingest_command)
app.command("plan", rich_help_panel="Stages")(plan_command)
app.command("execute", rich_help_panel="Stages")(execute_command)
app.command("export", rich_help_panel="Stages")(export_command)
app.command("show", rich_help_panel="Looking in")(show_command)
app.command("status", rich_help_panel="Looking in")(status_command)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"blend {version('blend-batch')}")  # noqa: T201 - stdout is the answer
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Plan and run offline LLM batch jobs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (0, 1 … 6 or 130)."""
    _accept_any_text()
    try:
        code = app(args=argv, prog_name="blend", standalone_mode=False)
    except BlendError as error:
        print_error(error.message, error.hint)
        return error.exit_code
    except TyperException as error:
        _print_misuse(error)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our stdout has gone; nothing is left to say to it.
        sys.stderr.close()
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


def _accept_any_text() -> None:
    # A terminal that knows only ASCII must not end a command.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _print_misuse(error: TyperException) -> None:
    # Without a message the help has been printed: no command was given.
    if message := error.format_message():
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "blend"
        print_error(message, f"`{command} --help` lists what it takes")


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
    sys.exit(main())
