"""Which tests may run in different processes? All but those that share something costly."""

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

# The engine of a session is started once in each process that asks for it, and vLLM loaded once.
TOGETHER = {
    "test_openai_vllm.py": "engine",
    "test_vllm_contract.py": "engine",
    "test_vllm_engine.py": "engine",
    "test_sim_engine_vllm.py": "small memory",
    "test_vllm_gate.py": "small memory",
    "test_vllm_pacing.py": "small memory",
    "test_sim_vllm.py": "vllm in process",
    "test_tokens_vllm.py": "vllm in process",
    "test_vllm_pace.py": "vllm in process",
}


class SideBySide(LoadScopeScheduling):
    """Hands out tests one by one, but together those that share a fixture of their file.

    Not by pytest-xdist's own groups: those of its release 3.8 do nothing with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        shares = _shares_a_fixture(self.config.rootpath / path)
        return TOGETHER.get(Path(path).name) or (path if shares else nodeid)


@cache
def _shares_a_fixture(path: Path) -> bool:
    return 'scope="' in path.read_text(encoding="utf-8")
