"""Which commands of the quickstart need neither a GPU nor a clone that is installed in place?

usage: python scripts/quickstart_commands.py docs/quickstart.md

Prints those of its first part, with made-up answers, but for the environment that they are typed
in: whoever asks has one.
"""

import re
import sys
from pathlib import Path

PART = "## With made-up answers"


def commands(document: str) -> list[str]:
    """Return the commands of the part, a line each."""
    part = document.partition(f"{PART}\n")[2].partition("\n## ")[0]
    typed = re.findall(r"^\$ (.*)$", part, re.MULTILINE)
    return [line for line in typed if not re.match(r"(python3? -m venv|pip) ", line)]


if __name__ == "__main__":
    found = commands(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if not found:
        sys.exit(f"no commands under `{PART}`")
    sys.stdout.write("".join(f"{line}\n" for line in found))
