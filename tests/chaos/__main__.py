"""Rounds of accidents at random; a failed one leaves its folder and the command that replays it.

python -m tests.chaos [--rounds 100] [--seed 1] [--vllm-rounds 6] [--only 17]
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.accidents import SIM, VLLM
from tests.chaos.rounds import Round
from tests.chaos.subject import Subject, prepare
from tests.tiny_model import tiny_model

ROWS = {"sim": 3_000, "vllm": 60}


@dataclass(frozen=True, slots=True)
class Lot:
    """Which accident meets which engine in a round."""

    number: int
    engine: str
    accident: str


def drawn(seed: int, rounds: int, vllm_rounds: int) -> list[Lot]:
    """Return what happens in each round: every accident about equally often, in random order."""
    rng = random.Random(seed)
    lots = []
    for engine, count in (("sim", rounds - vllm_rounds), ("vllm", vllm_rounds)):
        names = list(SIM if engine == "sim" else VLLM)
        some = [names[number % len(names)] for number in range(count)]
        rng.shuffle(some)
        lots += [Lot(len(lots) + number, engine, name) for number, name in enumerate(some)]
    return lots


def survives(lot: Lot, subject: Subject, folder: Path, *, seed: int) -> bool:
    """Run a round, say how it went, and keep its folder if a promise was broken."""
    accident = (SIM if lot.engine == "sim" else VLLM)[lot.accident]
    started = time.monotonic()
    try:
        round_ = Round(subject, folder, name=str(lot.number), seed=f"{seed}-{lot.number}")
        accident(round_)
    except Exception:  # noqa: BLE001 - whatever it is, the other rounds go on
        print(f"round {lot.number}: {lot.accident}: FAILED, see {folder}", flush=True)
        traceback.print_exc()
        return False
    print(f"round {lot.number}: {lot.accident}: {time.monotonic() - started:.1f} s", flush=True)
    shutil.rmtree(folder)
    return True


def main(arguments: Sequence[str]) -> int:
    """Run all rounds; return 0 when every promise was kept in each of them."""
    options = _parser().parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    vllm_rounds = min(options.vllm_rounds, options.rounds)
    print(f"seed {seed}", flush=True)
    lots = drawn(seed, options.rounds, vllm_rounds)
    wanted = [lot for lot in lots if not options.only or lot.number in options.only]
    folder = options.folder or Path(tempfile.mkdtemp(prefix="blend-chaos-"))
    started = time.monotonic()
    failed = []
    for engine, at_once in (("sim", options.jobs), ("vllm", 1)):
        mine = [lot for lot in wanted if lot.engine == engine]
        if not mine:
            continue
        home = folder / engine
        home.mkdir(parents=True, exist_ok=True)
        model = tiny_model(folder / "model", weights=vllm_rounds > 0)
        subject = prepare(home, model, engine=engine, rows=ROWS[engine], seed=seed)
        with ThreadPoolExecutor(at_once) as pool:
            kept = pool.map(
                lambda lot, subject=subject: survives(
                    lot, subject, folder / f"round-{lot.number}", seed=seed
                ),
                mine,
            )
            failed += [lot for lot, well in zip(mine, kept, strict=True) if not well]
    print(f"{len(wanted)} rounds, {len(failed)} failed, {time.monotonic() - started:.0f} s")
    for lot in failed:
        print(
            f"again: python -m tests.chaos --seed {seed} --rounds {options.rounds} "
            f"--vllm-rounds {vllm_rounds} --only {lot.number}"
        )
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--vllm-rounds", type=int, default=6, help="of them on a real vLLM")
    parser.add_argument("--seed", type=int, help="drawn and printed if absent")
    parser.add_argument("--only", type=int, nargs="*", help="these rounds alone")
    parser.add_argument("--jobs", type=int, default=2, help="rounds at once, of those without vLLM")
    parser.add_argument("--folder", type=Path, help="where the rounds take place")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
