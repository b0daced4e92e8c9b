"""How much of a job's prompts is shared: the sketch that ingest keeps in the job."""

from blend.core.sharing_sketch import SharingSketch
from blend.store.job import Job

_KEY = "sharing_sketch"
_ROWS_AT_ONCE = 1024


def opened_sketch(job: Job) -> SharingSketch:
    """Return the sketch of all prompts in the job, however its last ingest ended."""
    stored = job.blob(_KEY)
    sketch = SharingSketch.from_bytes(stored) if stored else SharingSketch()
    rows = len(job)
    if sketch.prompts > rows:
        # Saved after rows that a power failure took back.
        sketch = SharingSketch()
    for first in range(sketch.prompts, rows, _ROWS_AT_ONCE):
        chunk = range(first, min(first + _ROWS_AT_ONCE, rows))
        sketch = sketch.seen([job.request(row).prompt for row in chunk])
    return sketch


def save_sketch(job: Job, sketch: SharingSketch) -> None:
    """Keep the sketch in the job."""
    job.set_blob(_KEY, sketch.to_bytes())
