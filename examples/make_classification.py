"""Write one request a text: a few-shot prompt that asks the model for the label of the text.

usage: python examples/make_classification.py LABELLED.tsv TEXTS.txt > requests.jsonl

LABELLED.tsv has a label, a tab and a text on each line: the examples that all prompts begin with.
TEXTS.txt has a text on each line. What all prompts share stands first and what differs last, so
that the shared part is computed once.
"""

import json
import sys
from pathlib import Path


def prefix(labelled):
    """Return the instructions and the examples, the same for every text."""
    rows = [line.split("\t", 1) for line in labelled.read_text(encoding="utf-8").splitlines()]
    names = ", ".join(sorted({label for label, _ in rows}))
    shots = "".join(f"Text: {text}\nLabel: {label}\n\n" for label, text in rows)
    return f"Give each text one of these labels: {names}.\n\n{shots}"


def requests(labelled, texts):
    shared = prefix(labelled)
    for number, text in enumerate(texts.read_text(encoding="utf-8").splitlines(), 1):
        prompt = f"{shared}Text: {text}\nLabel:"
        body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "stop": ["\n"]}
        yield {
            "custom_id": f"{texts.stem}-{number}",
            "method": "POST",
            "url": "/v1/completions",
            "body": body,
        }


if __name__ == "__main__":
    for request in requests(Path(sys.argv[1]), Path(sys.argv[2])):
        print(json.dumps(request))
