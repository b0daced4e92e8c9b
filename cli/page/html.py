"""A report as one HTML file that needs no network: every figure is also there as a table.

User text is escaped in the markup and, as JSON, cannot end the element that it stands in. Should
that fail, the page's own policy lets no script run but the two whose digests it names.
"""

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import orjson

from blend.cli.page.content import Content, Values
from blend.cli.wording import counted, duration, percent, significant

HERE = Path(__file__).parent
TABLE_ROWS = 40


def html_of(content: Content) -> str:
    """Return the page."""
    library = (HERE / "echarts" / "echarts.min.js").read_text("utf-8")
    charts = (HERE / "charts.js").read_text("utf-8")
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; script-src {_digest(library)} {_digest(charts)}"
    )
    title = html.escape(f"{content.title}: blend report")
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{title}</title>\n<style>\n{(HERE / 'page.css').read_text('utf-8')}</style>\n",
            "</head>\n<body>\n<main>\n",
            *_sections(content),
            "</main>\n",
            f'<script type="application/json" id="content">{_json(content)}</script>\n',
            f"<script>{library}</script>\n<script>{charts}</script>\n</body>\n</html>\n",
        )
    )


def _digest(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _json(content: Content) -> str:
    """Return the content as JSON in which no element can end or begin."""
    text = orjson.dumps(asdict(content)).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sections(content: Content) -> Iterator[str]:
    yield f"<h1>{html.escape(content.title)}</h1>\n"
    yield _pairs(content.facts)
    yield _list("Against the plan", content.judged)
    yield _list("What keeps prompts from being shared", content.advice)
    if content.schedule:
        yield _schedule(content.schedule)
    if content.tree:
        yield _tree(content.tree)
    if content.timeline:
        yield _timeline(content.timeline)
    if content.policies:
        yield _policies(content.policies)
    if content.lengths:
        yield _lengths(content.lengths)
    yield _records("Failures", content.failures)
    yield _records("Rejected lines", content.rejections)
    yield _records("Runs", content.runs)
    if content.settings:
        settings = _table(("setting", "value"), content.settings, named=True)
        yield f'<section class="records"><h2>Settings</h2>{settings}</section>\n'


def _pairs(facts: Sequence[tuple[str, str]]) -> str:
    lines = (f"<div><dt>{html.escape(a)}</dt><dd>{html.escape(b)}</dd></div>" for a, b in facts)
    return f"<dl>{''.join(lines)}</dl>\n"


def _list(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    points = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f"<section><h2>{html.escape(title)}</h2><ul>{points}</ul></section>\n"


def _records(title: str, records: Sequence[Values]) -> str:
    if not records:
        return ""
    headers = list(records[0])
    rows = ([_cell(one[name]) for name in headers] for one in records)
    table = _table([name.replace("_", " ") for name in headers], rows, named=True)
    return f'<section class="records"><h2>{html.escape(title)}</h2>{table}</section>\n'


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, named: bool = False) -> str:
    """Return a table; the cells of a *named* one say what they are, where a page is narrow."""
    names = [html.escape(one) for one in headers]
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    marks = [f' data-name="{name}"' if named else "" for name in names]
    body = "".join(f"<tr>{_cells(marks, row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(marks: Sequence[str], row: Sequence[str]) -> str:
    cells = zip(marks, row, strict=True)
    return "".join(f"<td{mark}>{html.escape(cell)}</td>" for mark, cell in cells)


def _figure(name: str, title: str, says: str, table: str) -> str:
    """Return a section with a chart, what it says, and its figures as a table."""
    return (
        f'<section><h2>{html.escape(title)}</h2><figure><div class="chart" id="{name}" role="img" '
        f'aria-label="{html.escape(title)}. {html.escape(says)} The table below has the figures.">'
        f"</div><figcaption>{html.escape(says)}</figcaption></figure>"
        f"<details><summary>{html.escape(title)} as a table</summary>{table}</details></section>\n"
    )


def _picked(count: int) -> list[int]:
    """Return at most `TABLE_ROWS` places out of so many, evenly, first and last among them."""
    if count <= TABLE_ROWS:
        return list(range(count))
    return [round(one * (count - 1) / (TABLE_ROWS - 1)) for one in range(TABLE_ROWS)]


def _schedule(schedule: Values) -> str:
    bins = schedule["bins"]
    rows = (
        (
            counted(bins["first_position"][at]),
            significant(bins["density"][at]),
            "memory-bound" if bins["right"][at] >= 0.5 else "compute-bound",
            percent(bins["cached"][at]),
            counted(bins["expected_tokens"][at]),
            _tokens(bins["actual_tokens"][at]),
        )
        for at in _picked(len(bins["density"]))
    )
    headers = ("from position", "density", "side", "prompt cached", "answer expected", "real")
    return _figure(
        "schedule",
        "Schedule",
        "The requests in the order of the plan, from left to right: their density, red on the "
        "compute-bound and blue on the memory-bound side, the large subtree they belong to, how "
        "much of their prompts stands in a prefix before, and how long their answers are.",
        _table(headers, rows),
    )


def _tokens(value: float | None) -> str:
    return "none" if value is None else counted(value)


def _tree(nodes: Sequence[Values]) -> str:
    headers = (
        "node",
        "in",
        "rows",
        "prefix",
        "shared",
        "work",
        "density",
        "answer expected",
        "real",
        "example",
    )
    rows = (
        (
            str(one["node"]),
            str(one["parent"]),
            counted(one["rows"]),
            counted(one["prefix_tokens"]),
            percent(one["sharing"]),
            duration(one["work_s"]),
            significant(one["density"]),
            counted(one["expected_tokens"]),
            _tokens(one["actual_tokens"]),
            one["example"],
        )
        for one in nodes
    )
    return _figure(
        "tree",
        "Prefix tree",
        "Each area is a subtree of prompts with a common beginning, as large as its seconds of "
        "compute and memory; red is compute-bound, blue memory-bound. Click to look inside.",
        _table(headers, rows),
    )


def _timeline(timeline: Values) -> str:
    rows = [
        (
            name,
            duration(found["seconds"][at]),
            percent(found["compute"][at]),
            percent(found["memory"][at]),
            counted(found["kv_tokens"][at]),
            counted(found["running"][at]),
            counted(found["answered"][at]),
        )
        for name, found in timeline.items()
        if found
        for at in _picked(len(found["seconds"]))
    ]
    headers = ("timeline", "until", "compute", "memory", "KV tokens", "running", "answered")
    return _figure(
        "timeline",
        "Timeline",
        "What the plan foresaw (dashed) and how it went (solid): the share of time that computing "
        "and reading the cache need on the device planned for, the cache, and the answers.",
        _table(headers, rows),
    )


def _policies(policies: Sequence[Values]) -> str:
    headers = ("policy", "time", "10 %", "90 %", "shared", "tokens/s", "behind the fastest")
    rows = (
        (
            one["name"],
            *(duration(one[name]) for name in ("seconds", "low_s", "high_s")),
            percent(one["sharing"]),
            counted(one["tokens_s"]),
            percent(one["behind"]),
        )
        for one in policies
    )
    return _figure(
        "policies",
        "Policies compared",
        "The time that the job takes in simulated runs under each policy, with the range of 10 % "
        "to 90 % of the draws of lengths.",
        _table(headers, rows),
    )


def _lengths(lengths: Values) -> str:
    shares, answers = lengths["shares"], lengths["answers"]
    names = [name for name in shares if answers[name]]
    rows = (
        (counted(start), *(percent(shares[name][at]) for name in names))
        for at, start in enumerate(lengths["from_tokens"])
    )
    counts = ", ".join(f"{counted(answers[name])} {name}" for name in names)
    return _figure(
        "lengths",
        "Lengths of answers",
        f"Shares of answers by their length in tokens: {counts or 'none'}.",
        _table(("from tokens", *names), rows),
    )
