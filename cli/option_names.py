"""Which options does each command have? So that a settings file is checked without importing all.

The order is that of the commands' help; a test compares both.
"""

from collections.abc import Mapping

_PLAN = "policy no-sample sample-rate sample-seconds hardware plan-time no-fan-out"
_LIMITS = "limit max-time deadline"
_DISPLAY = "progress quiet"
_ENGINE = (
    "engine base-url api-key served-model-name concurrency max-model-len tensor-parallel-size "
    "pipeline-parallel-size data-parallel-size ray-address "
    "gpu-memory-utilization kv-cache-memory-bytes max-num-seqs max-num-batched-tokens dtype pacing "
    "engine-arg seed max-rebuilds give-up-after stall-timeout"
)
_NAMES = {
    "run": f"input output model job errors overwrite {_PLAN} {_LIMITS} {_ENGINE} {_DISPLAY}",
    "check": "strict max-line-bytes json",
    "ingest": (
        "job model revision max-model-len chat-template trust-remote-code on-duplicate strict "
        f"strict-model max-line-bytes json {_DISPLAY}"
    ),
    "plan": f"{_PLAN} {_ENGINE} {_DISPLAY}",
    "execute": f"resume {_LIMITS} {_ENGINE} {_DISPLAY}",
    "export": "output errors format overwrite",
    "retry": "failed truncated reason max-tokens dry-run json",
    "simulate": (
        "hardware tensor-parallel-size pipeline-parallel-size data-parallel-size policy mode draws "
        "step-overhead-ms "
        "gpu-memory-utilization max-num-seqs max-num-batched-tokens dtype kv-cache-dtype seed json"
    ),
    "calibrate": "model device seconds engine-steps output json",
    "doctor": "json",
    "show": "node depth json csv",
    "report": "output overwrite",
    "status": "json",
    "config": "json",
}
OPTION_NAMES: Mapping[str, tuple[str, ...]] = {
    command: tuple(names.split()) for command, names in _NAMES.items()
}
