"""Write a job of mixed kinds to try things on: made-up texts, shuffled as a real file would be.

usage: python examples/make_mixed.py COUNT [SEED] > mixed.jsonl

Of ten requests four classify a text behind a long few-shot prefix and answer with a word, three
ask about one of some long reports, two ask a short question, and one asks for an essay.
"""

import json
import random
import sys

# Words of no language, from enough syllables that two texts agree nowhere by chance.
SYLLABLES = [
    first + vowel + last for first in "bdfgklmnprstv" for vowel in "aeiou" for last in "lnrs"
]
TOPICS = ("travel", "cooking", "sport", "science", "music", "finance")


def words(rng, count):
    """Return so many made-up words of two syllables."""
    return " ".join("".join(rng.choices(SYLLABLES, k=2)) for _ in range(count))


def few_shot(topic):
    """Return the prefix that all texts of one topic stand behind."""
    rng = random.Random(topic)
    shots = "\n".join(f"Text: {words(rng, 40)}\nLabel: {topic} {'yes' if n % 2 else 'no'}\n"
                      for n in range(8))  # fmt: skip
    return f"Does the text speak of {topic}? Answer yes or no, as in these examples.\n\n{shots}"


def report(number):
    """Return a report that several requests ask about."""
    return words(random.Random(f"report {number}"), 500)


def body(kind, rng, reports):
    """Return what one request of this kind asks."""
    if kind == "classify":
        topic = rng.choice(TOPICS)
        return {"prompt": f"{few_shot(topic)}\nText: {words(rng, 30)}\nLabel:", "max_tokens": 4}
    instructions, text, max_tokens = {
        "read": (
            "Answer the question from the report alone.",
            f"{report(rng.randrange(reports))}\n\nQuestion: {words(rng, 10)}?",
            300,
        ),
        "ask": ("You answer questions in a friendly way.", words(rng, 12) + "?", 400),
        "essay": ("You are an essayist. Take your time.", f"Write on {words(rng, 6)}.", 3_000),
    }[kind]
    system = {"role": "system", "content": instructions}
    return {"messages": [system, {"role": "user", "content": text}], "max_tokens": max_tokens}


def main(count, seed=0):
    rng = random.Random(int(seed))
    kinds = ["classify"] * 4 + ["read"] * 3 + ["ask"] * 2 + ["essay"]
    for number in range(int(count)):
        kind = rng.choice(kinds)
        asked = body(kind, rng, reports=1 + int(count) // 30)
        url = "/v1/completions" if "prompt" in asked else "/v1/chat/completions"
        line = {"custom_id": f"{kind}-{number}", "method": "POST", "url": url, "body": asked}
        print(json.dumps(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
