"""Print questions and answers side by side, by custom_id.

usage: python examples/answers.py REQUESTS.jsonl RESULTS.jsonl CUSTOM_ID…
"""

import json
import sys
from pathlib import Path


def bodies(path, field):
    """Return {custom_id: what *field* finds on its line}."""
    with Path(path).open(encoding="utf-8") as lines:  # not splitlines(): U+2028 ends no line
        parsed = map(json.loads, lines)
        return {line["custom_id"]: field(line) for line in parsed}


def question(line):
    body = line["body"]
    text = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
    return text.split("\n\n")[-1]  # leaves out the worked examples in front


def answer(line):
    choice = line["response"]["body"]["choices"][0]
    return (choice["text"] if "text" in choice else choice["message"]["content"]).strip()


def main(requests, results, *custom_ids):
    questions, answers = bodies(requests, question), bodies(results, answer)
    for custom_id in custom_ids:
        print(f"── {custom_id}\n{questions[custom_id]}\n→ {answers.get(custom_id, '(none yet)')}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
