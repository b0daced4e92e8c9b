"""Input files made ready to be read more than once.

Stdin and pipes are copied first, and every file is known by its content.
"""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from blend.core.errors import BlendError
from blend.core.input.decompress import decompressed
from blend.core.utf8 import as_utf8

STDIN = "stdin"

RequestLine = Mapping[str, Any] | str | bytes
"""A request as a value, or as the line of a request file."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to ingest: its ``name`` in messages and in the job, and the ``path`` to read.

    ``digest`` is the SHA-256 of the file as it lies on disk, so a compressed file is known before
    it is decompressed. ``copied``: of what was no file, and so cannot have changed.
    """

    name: str
    path: Path
    size: int
    digest: str
    changed_ns: int
    copied: bool = False

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
    copied = name == "-"
    return InputFile(shown, path, state.st_size, digest, state.st_mtime_ns, copied)


@contextmanager
def spooled(requests: Iterable[RequestLine], name: str) -> Iterator[InputFile]:
    """Give requests as a file of lines that goes at the end; BlendError for what is no line."""
    with tempfile.NamedTemporaryFile(prefix="blend-", suffix=".jsonl") as copy:
        for number, request in enumerate(requests, 1):
            copy.write(_line(request, f"{name}:{number}"))
        copy.flush()
        yield replace(_known(copy.name, Path(copy.name)), name=name, copied=True)


def _line(request: RequestLine, place: str) -> bytes:
    if isinstance(request, str | bytes):
        line = request.encode() if isinstance(request, str) else request
        if b"\n" in line.rstrip(b"\r\n"):
            raise BlendError(f"{place}: a request is one line", hint="give the lines one by one")
        return line.rstrip(b"\r\n") + b"\n"
    try:
        return orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError as error:
        raise BlendError(
            f"{place}: not JSON: {error}", hint="a request is what JSON can say"
        ) from None
