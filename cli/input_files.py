"""Input files made ready to be read more than once.

Stdin and pipes are copied first, and every file is known by its content.
"""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from blend.core.errors import BlendError
from blend.core.input.decompress import decompressed
from blend.core.utf8 import as_utf8

STDIN = "stdin"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to ingest: its ``name`` in messages and in the job, and the ``path`` to read.

    ``digest`` is the SHA-256 of the file as it lies on disk, so a compressed file is known before
    it is decompressed.
    """

    name: str
    path: Path
    size: int
    digest: str
    changed_ns: int

    def refuse_change(self) -> None:
        """Raise BlendError when the file is no longer the one that was read first."""
        now = self.path.stat()
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed_ns):
            raise BlendError(
                f"the file changed while it was read: {self.name}",
                hint="let whatever writes it finish, then run the same command again",
            )


@contextmanager
def input_files(names: Sequence[str]) -> Iterator[list[InputFile]]:
    """Give every input as a file that stays readable; copies of stdin and pipes go at the end."""
    with ExitStack() as stack:
        yield [_known(name, _readable(name, stack)) for name in names]


def _readable(name: str, stack: ExitStack) -> Path:
    path = Path(name)
    if name != "-" and stat.S_ISREG(path.stat().st_mode):
        return path
    copy = tempfile.NamedTemporaryFile(prefix="blend-", suffix=".jsonl")  # noqa: SIM115
    stack.enter_context(copy)
    with decompressed(name) as stream:
        shutil.copyfileobj(stream, copy, 1 << 20)
    copy.flush()
    return Path(copy.name)


def _known(name: str, path: Path) -> InputFile:
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BlendError(
            f"cannot read {name}: {error.strerror}", hint="check its permissions and its disk"
        ) from error
    shown = STDIN if name == "-" else as_utf8(name)
    return InputFile(shown, path, state.st_size, digest, state.st_mtime_ns)
