"""What a job's model costs, from the configuration that was stored when it was ingested."""

from collections.abc import Mapping

from blend.core.errors import BlendError
from blend.core.hardware import ModelShape, model_shape
from blend.store.job import Job


def model_of(job: Job) -> str:
    """Return the model that a job was ingested for; BlendError for a job without rows."""
    model = job.meta("model")
    if model is None:
        raise BlendError(
            f"nothing has been ingested into {job.path}",
            hint=f"`blend ingest FILE --job {job.path} --model MODEL`",
        )
    return str(model)


def shape_of(job: Job, arguments: Mapping[str, str | None], *, on_cpu: bool) -> ModelShape:
    """Return the shape of the job's model with the data types that the engine will use."""
    model = model_of(job)
    dtype = arguments.get("dtype") or ("float32" if on_cpu else None)
    return model_shape(
        job.meta("model_config") or {},
        name=model,
        dtype=None if dtype == "auto" else dtype,
        kv_dtype=arguments.get("kv-cache-dtype"),
    )
