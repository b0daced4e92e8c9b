"""Draw the pictures that the documents show: a report in a browser, views and a run in a terminal.

usage: python -m scripts.pictures (`make pictures`)

Needs Chromium for the report. Job and model are those of examples/, the job large enough to be
worth seeing, and the engine is the simulated one.
"""

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

from blend.cli.app import main
from scripts.documents import ROOT, session_folder

PICTURES = ROOT / "docs" / "pictures"
REQUESTS = 6000
REPORT_SIZE = "1200,1765"
TERMINAL_WIDTH = 96
REDRAWN = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
"""What a terminal is sent before the lines of a run are drawn again."""

SHOWN_SHARE = 0.4
"""Of the work, when the run is shown."""

VIEWS = {"schedule": ["schedule"], "tree": ["tree", "--depth", "2"]}

# Without the web font that rich links to: a picture must not ask the network.
SVG = """<svg class="{unique_id}" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


def draw_report(job: Path) -> None:
    """Write what Chromium shows of the report of *job*, its first screens, in light colours."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        sys.exit("the picture of the report needs Chromium, and there is none")
    page = job.with_suffix(".html")
    main(["report", str(job), "-o", str(page)])
    # Where the job was made says nothing to a reader.
    page.write_text(page.read_text().replace(f"{Path.cwd()}/", ""))
    flags = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=5000"]
    target = f"--screenshot={PICTURES / 'report.png'}"
    words = [browser, *flags, f"--window-size={REPORT_SIZE}", target, page.as_uri()]
    subprocess.run(words, check=True, capture_output=True)


def draw_views(job: Path) -> None:
    """Write what a terminal shows of *job* as SVG."""
    command = [sys.executable, "-m", "blend.cli.app", "show", job.name]
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(TERMINAL_WIDTH)}
    for name, view in VIEWS.items():
        shown = subprocess.run([*command, *view], check=True, capture_output=True, env=environment)
        save(name, shown.stdout.decode(), title=f"blend show {job.name} {' '.join(view)}")


def save(name: str, text: str, *, title: str) -> None:
    """Write what a terminal shows as SVG."""
    paper = Console(record=True, width=TERMINAL_WIDTH, file=io.StringIO(), legacy_windows=False)
    paper.print(Text.from_ansi(text))
    svg = paper.export_svg(
        title=title, theme=DEFAULT_TERMINAL_THEME, code_format=SVG, unique_id="terminal"
    )
    (PICTURES / f"{name}.svg").write_text(svg)


def run_drawn(job: Path) -> None:
    """Execute *job* in a terminal, and write what it showed on the way as SVG."""
    words = ["execute", job.name, "--engine", "sim"]
    frames = REDRAWN.split(said_to_a_terminal([sys.executable, "-m", "blend.cli.app", *words]))
    shares = [re.search(r"([\d.]+) %", Text.from_ansi(frame).plain) for frame in frames]
    shown = next(
        frame
        for frame, share in zip(frames, shares, strict=True)
        if share and float(share[1]) >= 100 * SHOWN_SHARE
    )
    save("run", shown.rstrip(), title=f"blend {' '.join(words)}")


def said_to_a_terminal(words: list[str]) -> str:
    """Run a command in a pseudo terminal and return all that it sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, TERMINAL_WIDTH, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(TERMINAL_WIDTH)}
    with subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        said = b""
        # The end of a pseudo terminal is an error.
        with suppress(OSError):
            while chunk := os.read(ours, 65_536):
                said += chunk
    os.close(ours)
    if process.returncode:
        sys.exit(said.decode())
    return said.decode().replace("\r\n", "\n")


def draw() -> None:
    """Run the job and draw all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with session_folder() as folder:
        subprocess.run([sys.executable, "examples/make_model.py", "llama-3-8b"], check=True)
        make = [sys.executable, "examples/make_mixed.py", str(REQUESTS), "1"]
        with (folder / "mixed.jsonl").open("wb") as file:
            subprocess.run(make, check=True, stdout=file)
        job = folder / "mixed.blend"
        main(["ingest", "mixed.jsonl", "--job", job.name, "--model", "llama-3-8b"])
        main(["plan", job.name, "--engine", "sim", "--plan-time", "60"])
        run_drawn(job)
        draw_report(job)
        draw_views(job)


if __name__ == "__main__":
    draw()
