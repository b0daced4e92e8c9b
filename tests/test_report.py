"""`blend report` writes one page that needs nothing else, and that no request can take over."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from blend.cli.app import main
from blend.cli.page.content import content_of
from blend.cli.page.html import html_of
from blend.core.errors import USAGE
from blend.core.planning.bins import LENGTH_STARTS, length_counts, schedule_bins
from blend.core.planning.outline import top_subtrees
from blend.core.schedule import LEFT, RIGHT, Schedule
from blend.store.job import Job
from tests.batch_files import ingested, mixed
from tests.viewed_job import MALICIOUS_ID, viewed_job

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHARTS = {"schedule", "tree", "timeline", "lengths"}


class Page(HTMLParser):
    """The elements of a page: tags with their attributes, and the text of each kind."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open, data))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("reported") / "batch.blend"
    return viewed_job(path, model=tiny_tokenizer_dir)


@pytest.fixture(scope="module")
def report(job: Path) -> Path:
    path = job.with_name("report.html")
    assert main(["report", str(job), "-o", str(path)]) == 0
    return path


def content(text: str) -> dict:
    (found,) = re.findall(
        r'<script type="application/json" id="content">(.*?)</script>', text, re.DOTALL
    )
    return json.loads(found)


def test_the_page_has_a_figure_and_a_table_for_each_chart(report: Path) -> None:
    page = Page(report.read_text())
    charts = {one["id"]: one for one in page.named("div") if one.get("class") == "chart"}

    assert set(charts) >= CHARTS
    assert all(one["role"] == "img" and one["aria-label"] for one in charts.values())
    assert len(page.named("details")) == len(page.named("figcaption")) == len(charts)
    assert len(page.named("table")) >= len(charts) + 3
    assert {"Failures", "Rejected lines", "Runs", "Settings"} <= {
        text for tag, text in page.texts if tag == "h2"
    }


def test_the_page_asks_for_nothing_from_outside(report: Path) -> None:
    page = Page(report.read_text())

    assert not page.named("link") + page.named("img") + page.named("iframe")
    assert not [one for _, one in page.tags if "src" in one or "href" in one]


def test_what_users_wrote_is_text_and_only_the_two_scripts_may_run(report: Path) -> None:
    text = report.read_text()
    page = Page(text)
    scripts = [body for tag, body in page.texts if tag == "script"]
    (policy,) = [
        one["content"]
        for one in page.named("meta")
        if one.get("http-equiv") == "Content-Security-Policy"
    ]
    digests = {
        f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'"
        for one in scripts
    }

    assert len(page.named("script")) == 3
    assert not [one for _, one in page.tags if any(name.startswith("on") for name in one)]
    assert policy is not None
    assert "default-src 'none'" in policy
    allowed = set(policy.split("script-src ")[1].split())
    assert len(allowed) == 2
    assert allowed < digests
    assert MALICIOUS_ID in {cell for tag, cell in page.texts if tag == "td"}
    assert "</script><script>window" not in text
    assert not set(text) & {"\x1b", "\u202e"}


def test_the_json_is_small_and_whole(report: Path) -> None:
    text = report.read_text()
    found = content(text)
    library = (Path(__file__).parent.parent / "cli/page/echarts/echarts.min.js").read_text()

    assert len(text) - len(library) < 200_000
    assert any(node["example"] == MALICIOUS_ID for node in found["tree"])
    assert found["timeline"]["predicted"]
    assert found["timeline"]["actual"]
    assert found["judged"]
    assert sum(found["lengths"]["shares"]["real"]) == pytest.approx(1, rel=0.01)
    parents = {node["node"] for node in found["tree"]}
    assert all(node["parent"] in parents for node in found["tree"])


def test_a_job_without_a_plan_has_a_report_too(tmp_path: Path, tiny_tokenizer_dir: Path) -> None:
    path = ingested(tmp_path / "new.blend", mixed(4), model=tiny_tokenizer_dir)

    assert main(["report", str(path)]) == 0
    assert content(path.with_suffix(".html").read_text())["schedule"] is None


def test_a_report_overwrites_nothing_that_it_was_not_asked_to(job: Path, report: Path) -> None:
    assert main(["report", str(job), "-o", str(report)]) == USAGE
    assert main(["report", str(job), "-o", str(job), "--overwrite"]) == USAGE
    assert main(["report", str(job), "-o", str(report), "--overwrite"]) == 0


def policy(name: str, seconds: float) -> dict:
    """Return what a plan says of one policy that it has simulated."""
    return {
        "name": name,
        "policy": name,
        "seconds": seconds,
        "low_s": 0.9 * seconds,
        "high_s": 1.2 * seconds,
        "tokens_s": 1e5 / seconds,
        "sharing": 0.5,
        "preemptions": 3.0,
        "behind": seconds / 20.0 - 1.0,
    }


def in_browser(page: Path, *options: str) -> tuple[str, str]:
    """Return the page as the browser has it at last, and what the browser had to say."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-extensions"]
    command += ["--enable-logging=stderr", "--v=0", "--virtual-time-budget=10000"]
    command += [f"--user-data-dir={page.parent / 'browser'}", *options, "--dump-dom"]
    ended = subprocess.run(
        [*command, page.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    return ended.stdout, ended.stderr


def test_on_a_narrow_page_a_record_says_what_each_of_its_cells_is(report: Path) -> None:
    names = [cell.get("data-name") for cell in Page(report.read_text()).named("td")]

    for name in ("message", "custom id", "reason", "outcome", "setting"):
        assert name in names
    # Tables of figures are scrolled, and large.
    assert None in names


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.slow
@pytest.mark.parametrize("scheme", [[], ["--force-dark-mode"]], ids=["light", "dark"])
def test_a_browser_draws_every_chart_without_complaint(
    job: Path, tmp_path: Path, scheme: list[str]
) -> None:
    with Job.open(job) as opened:
        whole = replace(content_of(opened), policies=[policy("dfs", 20.0), policy("fcfs", 31.0)])
    page_path = tmp_path / "report.html"
    page_path.write_text(html_of(whole))
    dom, said = in_browser(page_path, *scheme)
    charts = len(re.findall('class="chart"', dom))

    assert "CONSOLE" not in said
    assert charts == len(CHARTS) + 1
    assert f'data-charts="{charts}"' in dom
    assert len(re.findall("<svg", dom)) == charts
    assert all(len(one.split("</svg>")[0]) > 2000 for one in dom.split("<svg")[1:])
    page = Page(dom)
    assert len(page.named("script")) == 3
    assert not page.named("img")
    assert not [one for _, one in page.tags if any(name.startswith("on") for name in one)]


def schedule(n: int) -> Schedule:
    return Schedule(
        "paper",
        np.arange(n)[::-1].copy(),
        np.where(np.arange(n) < n // 2, LEFT, RIGHT).astype(np.int8),
        np.arange(n, dtype=float),
        np.full(n, 25),
        np.where(np.arange(n) < n // 2, 4.0, 0.25),
        1.0,
    )


def test_the_bins_of_a_schedule_are_means_of_its_rows() -> None:
    actual = np.full(100, np.nan)
    actual[90:] = 7.0  # the first ten positions
    found = schedule_bins(
        schedule(100),
        prompt_tokens=np.full(100, 100),
        bins=10,
        actual_tokens=actual,
        subtree=np.arange(100) // 50,
    )

    assert found.first_position.tolist() == list(range(0, 100, 10))
    assert found.density.tolist() == pytest.approx([4.0] * 5 + [0.25] * 5)
    assert found.cached.tolist() == pytest.approx([0.75] * 10)
    assert found.right.tolist() == [0.0] * 5 + [1.0] * 5
    assert found.expected_tokens.tolist() == pytest.approx([10 * k + 4.5 for k in range(10)])
    assert found.actual_tokens[0] == 7
    assert np.isnan(found.actual_tokens[1:]).all()
    assert found.subtree.tolist() == [1] * 5 + [0] * 5


@pytest.mark.parametrize(("rows", "bins"), [(0, 5), (1, 5), (7, 5), (5, 5)])
def test_there_are_no_more_bins_than_rows(rows: int, bins: int) -> None:
    found = schedule_bins(schedule(rows), prompt_tokens=np.full(rows, 100), bins=bins)

    assert len(found.density) == len(found.subtree) == min(rows, bins)


def test_lengths_are_counted_where_they_belong() -> None:
    counts = length_counts([0.4, 1, 2, 3, 4, 5, 6, 7, 8, 10**9])
    by_start = dict(zip(LENGTH_STARTS.tolist(), counts.tolist(), strict=True))

    assert {start: count for start, count in by_start.items() if count} == {
        1: 2, 2: 1, 3: 1, 4: 2, 6: 2, 8: 1, int(LENGTH_STARTS[-1]): 1,
    }  # fmt: skip


def test_the_top_of_a_subtree_is_right_below_the_root() -> None:
    assert top_subtrees([0, 0, 1, 2, 0, 4]) == [0, 1, 1, 1, 4, 4]
