"""A job that every view has something to say of: planned, executed, with failures, rejections."""

from pathlib import Path

from blend.cli.app import main
from blend.core.completion import Completion
from blend.store.job import Job
from tests.batch_files import chat, ingested, mixed

MALICIOUS_ID = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1">'
MALICIOUS_TEXT = "[bold]</title><b>${hacked}{{hacked}}\x1b[31m\u202e"
SIM = ["--engine", "sim", "--hardware", "a100-80g"]


def planned_job(path: Path, *, model: Path, rows: int = 120) -> Path:
    """Return a planned job; one custom_id and one prompt are hostile, two lines are rejected."""
    requests = [*mixed(rows), chat(MALICIOUS_ID, MALICIOUS_TEXT, max_tokens=20)]
    source = path.with_suffix(".bad.jsonl")
    lines = ('{"custom_id": "<b>", "body"', '{"prompt": "x", "max_tokens": -5}', '{"prompt": "y"}')
    source.write_text("\n".join(lines))
    ingested(path, requests, model=model)
    assert main(["ingest", str(source), "--job", str(path), "--model", str(model)]) == 3
    assert main(["plan", str(path), *SIM]) == 0
    return path


def viewed_job(path: Path, *, model: Path) -> Path:
    """Return a job that was planned and executed, but for two rows, of which one failed."""
    planned_job(path, model=model)
    with Job.open(path) as job:
        pending = job.pending().nonzero()[0].tolist()
        run = job.begin_run(purpose="sample", engine="sim", settings={})
        body = b'{"error": {"message": "no room for <b>17</b> tokens"}}'
        job.record(run, [Completion(pending[0], 400, body)])
        job.end_run(run, "finished")
    assert main(["execute", str(path), "--engine", "sim"]) == 3
    return path
