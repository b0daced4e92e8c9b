"""`blend show` lets a person judge a job: on 80 columns, without colour, and as JSON and CSV."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from blend.cli import console
from blend.cli.app import main
from blend.core.errors import USAGE
from blend.store.job import Job
from tests.viewed_job import MALICIOUS_ID, planned_job, viewed_job

TABLES = ["schedule", "tree", "timeline", "rejected", "failures"]
VIEWS = [["job"], *([one] for one in TABLES), ["request", MALICIOUS_ID]]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("planned") / "batch.blend"
    return planned_job(path, model=tiny_tokenizer_dir)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("done") / "batch.blend"
    return viewed_job(path, model=tiny_tokenizer_dir)


def shown(capsys: pytest.CaptureFixture[str], job: Path, *words: str) -> str:
    capsys.readouterr()
    assert main(["show", str(job), *words]) == 0
    return capsys.readouterr().out


def parsed(capsys: pytest.CaptureFixture[str], job: Path, *words: str) -> dict:
    return json.loads(shown(capsys, job, *words, "--json"))


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view[0])
def test_a_view_fits_on_80_columns_and_lets_nothing_act_on_a_terminal(
    done, view, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(done.parent)
    text = shown(capsys, Path(done.name), *view)

    # What a user wrote, such as an id or a path, is not ours to shorten everywhere.
    theirs = (MALICIOUS_ID[:20], str(done.parent), "begins like")
    ours = [line for line in text.splitlines() if not any(one in line for one in theirs)]
    assert max(len(line) for line in ours) <= 80
    assert not set(text) & {"\x1b", "\u202e"}


@pytest.mark.parametrize("view", TABLES)
def test_a_table_comes_as_csv_with_one_record_a_line(done, view: str, capsys) -> None:
    text = shown(capsys, done, view, "--csv")
    records = list(csv.reader(io.StringIO(text)))

    assert len(records) == len(text.splitlines()) > 1
    assert {len(record) for record in records} == {len(records[0])}


def test_the_csv_of_the_schedule_is_the_schedule(done, capsys) -> None:
    records = list(csv.DictReader(io.StringIO(shown(capsys, done, "schedule", "--csv"))))
    order = parsed(capsys, done, "schedule")["order"]

    assert [int(one["row"]) for one in records] == order
    assert [int(one["position"]) for one in records] == list(range(len(order)))
    assert {one["side"] for one in records} <= {"left", "right"}


def test_the_strips_are_as_long_as_each_other_and_name_the_prefixes(done, capsys) -> None:
    lines = shown(capsys, done, "schedule").splitlines()
    strips = {one[:10].strip(): one[10:] for one in lines}
    letters = set(strips["prefix"])

    assert len({len(strips[name]) for name in ("density", "cached", "prefix", "side")}) == 1
    assert "a" in letters
    assert any(line.strip().startswith("a: ") for line in lines)


def test_the_glance_says_what_the_plan_foresaw_and_how_it_went(done, planned, capsys) -> None:
    before, after = shown(capsys, planned), shown(capsys, done)

    assert "after the sample" in before
    assert "judged" not in before
    assert "judged" in after
    assert "output tokens" in after


def test_the_tree_shows_a_node_and_what_is_below_it(done, capsys) -> None:
    whole = parsed(capsys, done, "tree")["nodes"]
    inner = next(one for one in whole[1:] if any(n["parent"] == one["node"] for n in whole))
    part = parsed(capsys, done, "tree", "--node", str(inner["node"]))["nodes"]
    flat = parsed(capsys, done, "tree", "--depth", "1")["nodes"]

    assert part[0] == inner
    assert all(inner["lo"] <= one["lo"] < one["hi"] <= inner["hi"] for one in part)
    assert 1 < len(part) < len(whole)
    assert {one["level"] for one in flat} == {0, 1}


def test_the_answers_of_a_subtree_are_those_of_its_rows(done, capsys) -> None:
    nodes = parsed(capsys, done, "tree")["nodes"]
    with Job.open(done) as job:
        answered, subtree, plan = job.answered(), job.subtrees(), job.plan()
    assert subtree is not None
    known = np.isin(answered.rows, plan.sample_rows[plan.sample_finished])
    tokens = answered.output_tokens[~known]

    assert nodes[0]["answered_rows"] == len(tokens)
    assert nodes[0]["answered_tokens"] == pytest.approx(tokens.mean())
    below = {one["node"]: {one["node"]} for one in nodes}
    for one in reversed(nodes[1:]):
        below[one["parent"]] |= below[one["node"]]
    for one in nodes:
        inside = np.isin(subtree[answered.rows[~known]], list(below[one["node"]]))
        assert one["answered_rows"] == inside.sum()


def test_both_timelines_end_with_every_row(done, planned, capsys) -> None:
    before, after = parsed(capsys, planned, "timeline"), parsed(capsys, done, "timeline")
    with Job.open(done) as job:
        executed = sum(run.results for run in job.runs() if run.purpose == "execute")

    assert before["actual"] is None
    assert after["actual"]["answered"][-1] == executed
    for timeline in (after["predicted"], after["actual"]):
        assert len({len(column) for column in timeline.values()}) == 1
        assert timeline["seconds"] == sorted(timeline["seconds"])
        assert timeline["answered"] == sorted(timeline["answered"])


def test_the_path_of_a_request_leads_to_it(done, capsys) -> None:
    found = parsed(capsys, done, "request", "choice-1")
    rows = [one["rows"] for one in found["path"]]

    assert found["path"][0]["node"] == 0
    assert rows == sorted(rows, reverse=True)
    assert found["cost"]["hardware"] == "a100-80g"
    assert found["cost"]["prefill_s"] > 0


def test_rejected_lines_and_failed_rows_are_all_there(done, capsys) -> None:
    rejected = parsed(capsys, done, "rejected")
    failures = parsed(capsys, done, "failures")

    assert len(rejected["rejected"]) == sum(rejected["reasons"].values()) == 2
    assert [one["status_code"] for one in failures["failed"]] == [400]
    assert failures["failed"][0]["line"] > 0
    assert "no room for" in shown(capsys, done, "failures")


@pytest.mark.parametrize(
    "words",
    [
        ["request"],
        ["request", "nobody"],
        ["schedule", "row-1"],
        ["schedule", "--depth", "1"],
        ["tree", "--node", "9999"],
        ["job", "--csv"],
        ["tree", "--csv", "--json"],
    ],
)
def test_what_makes_no_sense_is_refused_with_a_way_out(done, words: list[str], capsys) -> None:
    assert main(["show", str(done), *words]) == USAGE
    assert "hint:" in capsys.readouterr().err


def test_a_terminal_gets_a_pager_only_for_what_is_longer(done, capsys, monkeypatch) -> None:
    paged: list[str] = []
    monkeypatch.setattr("pydoc.pager", paged.append)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(console.out, "_force_terminal", True)
    monkeypatch.setattr(console, "on_terminal", lambda _console: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(console.out, "_height", 200)
    short = shown(capsys, done, "tree")
    assert not paged
    monkeypatch.setattr(console.out, "_height", 5)

    assert shown(capsys, done, "tree") == ""
    assert paged == [short]


@pytest.mark.parametrize("view", ["schedule", "tree"])
def test_colours_say_nothing_that_the_text_does_not(done, view: str) -> None:
    def printed(**environment: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "blend.cli.app", "show", str(done), view],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    plain = printed(NO_COLOR="1", FORCE_COLOR="1")
    coloured = printed(FORCE_COLOR="1", NO_COLOR="")

    assert not re.search(r"\x1b\[[\d;]*3[0-7]m", plain)
    assert re.search(r"\x1b\[[\d;]*3[0-7]m", coloured)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == re.sub(r"\x1b\[[\d;]*m", "", plain)


def test_looking_imports_only_the_view_that_is_asked_for(done) -> None:
    heavy = (
        "torch",
        "transformers",
        "vllm",
        "numba",
        "aiohttp",
        "jinja2",
        "blend.core.planning.plan",
        "blend.core.engines.sim",
        "pydoc",
    )
    code = (
        "import sys; from blend.cli.app import main; "
        f"main(['show', {str(done)!r}, 'tree']); "
        f"print(sorted(set({heavy}) & set(sys.modules)), "
        "'blend.cli.views.timeline' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout.splitlines()[-1] == "[] False"
