"""Compile the simulator, so that no first plan has to: python -m scripts.compile_kernels."""

from blend.core.planning.engine_model import engine_model
from blend.core.planning.guard import warm_up
from blend.core.planning.hardware import hardware_preset, model_preset


def compile_kernels() -> None:
    """Run every kernel that a plan needs, which keeps it compiled for other processes."""
    warm_up(engine_model(hardware_preset("a100-80g"), model_preset("llama-3-8b")))


if __name__ == "__main__":
    compile_kernels()
