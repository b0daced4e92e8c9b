"""What the scanner of a plan knows, as bytes in the job: an uncompressed numpy archive."""

import io
from dataclasses import fields

import numpy as np
import orjson

from blend.core.planning.classes import Blending, LengthClasses

KEY = "blending"


def to_bytes(blending: Blending) -> bytes:
    """Return *blending* as bytes."""
    columns = {field.name: getattr(blending.classes, field.name) for field in fields(LengthClasses)}
    settings = {
        field.name: getattr(blending, field.name)
        for field in fields(Blending)
        if field.name != "classes"
    }
    settings_bytes = np.frombuffer(orjson.dumps(settings), np.uint8)
    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, settings=settings_bytes, **columns)
    return archive.getvalue()


def from_bytes(archive_bytes: bytes) -> Blending:
    """Return what `to_bytes` was given."""
    with np.load(io.BytesIO(archive_bytes), allow_pickle=False) as archive:
        columns = {field.name: archive[field.name] for field in fields(LengthClasses)}
        settings = orjson.loads(archive["settings"].tobytes())
    return Blending(LengthClasses(**columns), **settings)
