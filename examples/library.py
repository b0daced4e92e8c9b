"""The whole life of a job from Python, on the simulated engine: no GPU and no weights.

usage: python examples/make_model.py llama-3-8b
       python examples/library.py llama-3-8b reviews.blend
"""

import sys

from blend.cli.api import Batch, PlanChoices, RunLimits, SimulatedDevice, engine_options

INSTRUCTIONS = "Say whether a review is positive or negative.\n\n"


def requests():
    """Yield requests as values, or as the lines of a request file."""
    for number in range(200):
        text = f"The zip broke on day {number}, and nobody answers the phone."
        yield {
            "custom_id": f"review-{number}",
            "prompt": INSTRUCTIONS + text,
            "max_tokens": 40,
        }


def main(model, path):
    batch = Batch(path)
    ingested = batch.ingest(requests(), model=model)
    print(f"{ingested.accepted} accepted, {len(ingested.rejected)} rejected")

    engine = engine_options("sim", {"max_num_seqs": 64})
    plan = batch.plan(engine, PlanChoices(policy="dfs", sample_rate=0.05))
    print(f"{plan.prediction.sharing:.0%} of the prompt tokens are shared")

    best = batch.simulate(SimulatedDevice("h200"), policies=["dfs", "fcfs"]).candidates[0]
    print(f"fastest on an H200: {best.policy}")

    arrived = []
    batch.execute(engine, RunLimits(rows=50), on_answer=arrived.append)
    print(f"{len(arrived)} answers so far, such as that of {arrived[0].custom_id}")
    counts = batch.execute(engine, on_progress=lambda run: run.share)
    print(f"{counts.answered} answered, {counts.failed} failed")

    tokens = sum(answer.completion_tokens for answer in batch.answers())
    print(f"{tokens} tokens written")
    batch.export("answers.jsonl", overwrite=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
