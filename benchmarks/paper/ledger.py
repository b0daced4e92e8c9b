"""The outcomes of cells on disk, one small file each, so that a run of many cells can go on.

A file is named by the digest of its cell and of the code that measured it: an outcome of other
code is never taken for one of this code.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from benchmarks.paper.cells import Cell, Outcome

ROOT = Path(__file__).parent.parent.parent


def code_digest() -> str:
    """Return the digest of all code that an outcome depends on."""
    digest = sha256()
    sources = [
        *(ROOT / "core").rglob("*.py"),
        *(ROOT / "core").rglob("*.json"),
        *(ROOT / "benchmarks").glob("*.py"),
        ROOT / "benchmarks" / "paper" / "cells.py",
        ROOT / "benchmarks" / "paper" / "warm_up.py",
        ROOT / "cli" / "planning.py",
    ]
    for path in sorted(sources):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def load(folder: Path, cells: Iterable[Cell], *, code: str) -> dict[Cell, Outcome]:
    """Return the outcomes of those *cells* that *folder* holds."""
    found = {}
    for cell in cells:
        path = _path(folder, cell, code=code)
        if path.exists():
            found[cell] = Outcome(**json.loads(path.read_text(encoding="utf-8"))["outcome"])
    return found


def save(folder: Path, cell: Cell, outcome: Outcome, *, code: str) -> None:
    """Write the outcome of one cell; a file is there whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, cell, code=code)
    beside = path.with_suffix(f".{os.getpid()}")
    record = {"cell": asdict(cell), "outcome": asdict(outcome)}
    beside.write_text(json.dumps(record), encoding="utf-8")
    beside.replace(path)


def _path(folder: Path, cell: Cell, *, code: str) -> Path:
    key = json.dumps([code, asdict(cell)], sort_keys=True)
    return folder / f"{sha256(key.encode()).hexdigest()[:24]}.json"
