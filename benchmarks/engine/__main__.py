"""Run batches by blend and by vLLM's own ways, interleaved on a real vLLM, and write the report.

python -m benchmarks.engine [--case a b c] [--repeat 5] [--way generate-file ...]
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from benchmarks.engine.cases import Case, cases
from benchmarks.engine.contest import Contest, Line, Setting, Way, prepared
from benchmarks.engine.report import report
from benchmarks.machine import conditions

ROOT = Path(__file__).parent.parent.parent
RAW = ROOT / "benchmarks" / "results"
LOGS = ROOT / "build" / "bench"
PUBLISHED = ROOT / "docs" / "results" / "engine.md"


def main(arguments: Sequence[str]) -> None:
    """Measure, write every run down at once, and then the report."""
    options = _parser().parse_args(arguments)
    for folder in (options.raw, LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    found = conditions()
    stamp = found["date"].replace(":", "").replace("-", "")
    path = options.raw / f"engine-{stamp}.jsonl"
    rows = [json.loads(line) for earlier in options.earlier for line in earlier.open()]
    with tempfile.TemporaryDirectory(prefix="bench-model-") as scratch:
        # What is known of this machine's steps is what these runs measure.
        os.environ["BLEND_PROFILES"] = str(Path(scratch) / "profiles.json")
        model = options.model or _tiny_model(Path(scratch) / "tiny")
        for name in options.case:
            case = cases()[name].first(options.requests)
            with prepared(case, model) as setting:
                rows += _measured(case, setting, options, found, path)
    text = report(rows)
    target = options.report or PUBLISHED
    target.write_text(text, encoding="utf-8")
    print(text)
    print(f"runs: {path}\nreport: {target}")


def _measured(
    case: Case, setting: Setting, options: argparse.Namespace, found: dict[str, Any], path: Path
) -> list[dict[str, Any]]:
    rows = []
    with Contest(setting, options.way, logs=LOGS) as contest:
        for line in contest.lines(options.repeat):
            rows.append(_row(case, setting, contest, line, found))
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            runs = line.measured
            print(
                f"({case.name}) {line.repetition} {line.way}: {runs.wall_s:.2f} s, "
                f"{runs.cpu_s:.2f} CPU s, {runs.cached_tokens:,} tokens from the cache",
                file=sys.stderr,
                flush=True,
            )
    return rows


def _row(
    case: Case, setting: Setting, contest: Contest, line: Line, found: dict[str, Any]
) -> dict[str, Any]:
    engine, _, which = line.way.partition("-")
    return {
        "case": case.name,
        "title": case.title,
        "requests": len(case.asks),
        "kv_tokens": case.kv_tokens,
        "max_sequences": case.max_sequences,
        "possible_tokens": setting.possible_tokens,
        "way": line.way,
        "repetition": line.repetition,
        "runs": asdict(line.measured),
        "start_s": contest.start_s["run-batch" if line.way == "run-batch" else engine],
        "plan_s": contest.plan_s.get(which),
        "model": setting.model,
        "load": line.load,
        "conditions": found,
    }


def _tiny_model(folder: Path) -> Path:
    from tests.tiny_model import tiny_model  # torch is slow to import

    model: Path = tiny_model(folder)
    return model


def _parser() -> argparse.ArgumentParser:
    ways = get_args(Way)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--case", nargs="*", choices=list(cases()), default=list(cases()))
    parser.add_argument("--way", nargs="*", choices=ways, default=list(ways))
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of every way")
    parser.add_argument("--model", type=Path, help="instead of the tiny model")
    parser.add_argument("--requests", type=int, help="the first ones of each case; all")
    parser.add_argument(
        "--earlier", nargs="*", type=Path, default=[], help="lines that the report holds too"
    )
    parser.add_argument("--raw", type=Path, default=RAW, help="folder of the lines")
    parser.add_argument("--report", type=Path, help=f"instead of {PUBLISHED.relative_to(ROOT)}")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
