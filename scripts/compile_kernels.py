"""Compile the simulator, so that no first plan has to: python -m scripts.compile_kernels."""

from blend.core.planning.engine_model import engine_model
from blend.core.planning.guard import warm_up
from blend.core.planning.hardware import hardware_preset, model_preset

if __name__ == "__main__":
    warm_up(engine_model(hardware_preset("a100-80g"), model_preset("llama-3-8b")))
