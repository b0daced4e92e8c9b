"""The one exception for what the user can repair."""

from typing import Literal

ExitCode = Literal[2, 3, 4, 5, 6]

USAGE: Literal[2] = 2
SOME_FAILED: Literal[3] = 3
RESUMABLE: Literal[4] = 4
IN_USE: Literal[5] = 5
MISMATCH: Literal[6] = 6


class BlendError(Exception):
    """What went wrong, what helps, and the exit code the command ends with.

    The message names the place (``file:line``, custom_id, path) and the offending value; the
    hint names the next command. A fault of blend's own is never a BlendError: it keeps its
    built-in type and its traceback.
    """

    def __init__(self, message: str, *, hint: str | None = None, exit_code: ExitCode = USAGE):
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
