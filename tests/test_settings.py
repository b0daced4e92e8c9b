"""Settings from files and the environment: who wins, what is refused, and what is told of it."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from blend.cli.app import main
from blend.cli.config import every_command
from blend.cli.option_names import OPTION_NAMES
from blend.cli.settings import INTERNAL, opposite, settable
from blend.core.engines.vllm_pace import PACE_VARIABLE
from blend.store.job import Job
from tests.batch_files import ingested, mixed, write_requests
from tests.option_table import option_table, options_by_command

DOCUMENT = Path(__file__).parent.parent / "docs" / "configuration.md"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder without settings, two below the temporary one."""
    folder = tmp_path / "project" / "deep"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own settings file, which is not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "blend").mkdir(parents=True)
    return tmp_path / "home" / "blend" / "blend.toml"


def settings(capsys: pytest.CaptureFixture[str], command: str, *before: str) -> dict[str, dict]:
    """Return what `blend config --json` says of a command's options, by name."""
    capsys.readouterr()
    assert main([*before, "config", command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return {one["option"]: one for one in document["options"]}


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "\nhint: " in said
    return said


def test_each_place_wins_over_those_behind_it(here, own, capsys, monkeypatch) -> None:
    """Command line, own variable, common variable, table, top level, user's file, default."""
    places = ["default"]
    places.append(settings(capsys, "plan")["seed"]["value"])
    own.write_text("seed = 1\n[plan]\nseed = 2")
    places.append(settings(capsys, "plan")["seed"]["value"])
    nearest = here.parent / "blend.toml"
    nearest.write_text("seed = 3")
    places.append(settings(capsys, "plan")["seed"]["value"])
    nearest.write_text("seed = 3\n[plan]\nseed = 4")
    places.append(settings(capsys, "plan")["seed"]["value"])
    (here / "blend.toml").write_text("seed = 5")
    places.append(settings(capsys, "plan")["seed"]["value"])
    monkeypatch.setenv("BLEND_SEED", "6")
    places.append(settings(capsys, "plan")["seed"]["value"])
    monkeypatch.setenv("BLEND_PLAN_SEED", "7")
    places.append(settings(capsys, "plan")["seed"]["value"])

    assert places == ["default", 0, 2, 3, 4, 5, 6, 7]


def test_a_run_takes_its_settings_and_says_from_where(
    here, tiny_tokenizer_dir, capsys, monkeypatch
) -> None:
    job = ingested(here / "batch.blend", mixed(8), model=tiny_tokenizer_dir)
    (here / "blend.toml").write_text(
        'engine = "sim"\nseed = 5\n[plan]\nno-sample = true\npolicy = "dfs"\n'
        "[engine-args]\nmax-num-seqs = 7\nblock-size = 32\n"
    )
    monkeypatch.setenv("BLEND_PLAN_TIME", "3")
    capsys.readouterr()

    assert main(["plan", str(job), "--policy", "fcfs"]) == 0
    said = capsys.readouterr().err
    with Job.open(job) as opened:
        plan = opened.plan()
    assert plan is not None
    assert (plan.policy, plan.settings["seed"]) == ("fcfs", 5)
    assert "settings: no-sample, engine, max-num-seqs, engine-arg, seed from blend.toml; " in said
    assert "plan-time from BLEND_PLAN_TIME" in said

    assert main(["execute", str(job), "--engine-arg", "report-lag=1"]) == 0
    with Job.open(job) as opened:
        arguments = opened.runs()[-1].settings
    assert arguments["max-num-seqs"] == "7"
    assert arguments["block-size"] == "32"
    assert arguments["report-lag"] == "1"


def test_what_stands_on_the_command_line_wins_over_the_table_of_the_engine(
    here, tiny_tokenizer_dir
) -> None:
    job = ingested(here / "batch.blend", mixed(8), model=tiny_tokenizer_dir)
    (here / "blend.toml").write_text(
        'engine = "sim"\n[engine-args]\nmax_num_seqs = 7\nblock_size = 32\nasync-x = false\n'
    )
    assert main(["plan", str(job), "--no-sample"]) == 0

    assert main(["execute", str(job), "--max-num-seqs", "9", "--engine-arg", "block-size=16"]) == 0
    with Job.open(job) as opened:
        arguments = opened.runs()[-1].settings
    assert arguments["max-num-seqs"] == "9"
    assert arguments["block-size"] == "16"
    assert arguments["no-async-x"] is None


def test_a_file_can_give_what_a_command_requires(here, tiny_tokenizer_dir) -> None:
    write_requests(here / "in.jsonl", mixed(6))
    (here / "blend.toml").write_text(
        f'engine = "sim"\n[run]\ninput = ["in.jsonl"]\noutput = "out.jsonl"\n'
        f"model = {json.dumps(str(tiny_tokenizer_dir))}\n"
    )

    assert main(["run"]) == 0
    assert len((here / "out.jsonl").read_text().splitlines()) == 6


def test_a_variable_takes_back_a_switch_that_a_file_sets(here, capsys, monkeypatch) -> None:
    (here / "blend.toml").write_text("[plan]\nno-sample = true")

    assert settings(capsys, "plan")["no-sample"]["value"] is True
    monkeypatch.setenv("BLEND_PLAN_NO_SAMPLE", "false")
    assert settings(capsys, "plan")["no-sample"]["value"] is False


def test_the_command_line_takes_back_a_switch_that_a_file_sets(here, capsys) -> None:
    broken, file = here / "broken.jsonl", here / "blend.toml"
    broken.write_text("1\n2\n")
    file.write_text("[check]\nstrict = true")

    assert main(["check", "broken.jsonl"]) == 3
    assert "rejected: 1" in capsys.readouterr().out
    assert main(["check", "broken.jsonl", "--no-strict"]) == 3
    assert "rejected: 2" in capsys.readouterr().out
    assert main(["config", "check"]) == 0
    assert "`--no-strict` on the command line takes strict back" in capsys.readouterr().out


def test_every_switch_has_a_word_that_takes_it_back() -> None:
    commands = every_command().values()
    switches = [(c, o) for c in commands for o in settable(c) if o.is_bool_flag]
    words = [opposite(option) for _, option in switches]

    assert {"--no-overwrite", "--sample", "--fan-out", "--no-json"} <= set(words)
    for (command, option), word in zip(switches, words, strict=True):
        assert word not in {one for other in command.params for one in other.opts}
        for given, value in (([option.opts[0], word], False), ([word, option.opts[0]], True)):
            context = command.make_context(command.name, given, resilient_parsing=True)
            assert context.params[option.name] is value


def test_a_named_file_takes_the_place_of_the_nearest(here, capsys, monkeypatch) -> None:
    (here / "blend.toml").write_text("seed = 1")
    (here / "other.toml").write_text("seed = 2")
    (here / "third.toml").write_text("seed = 3")

    assert settings(capsys, "plan", "--config", "other.toml")["seed"]["value"] == 2
    monkeypatch.setenv("BLEND_CONFIG", "third.toml")
    assert settings(capsys, "plan")["seed"]["origin"] == "third.toml:1 `seed`"
    assert settings(capsys, "plan", "--config", "other.toml")["seed"]["value"] == 2


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ('polcy = "dfs"', "blend.toml:1: unknown key: `polcy`", "did you mean `policy`?"),
        ("\n[plan]\nsampel-rate = 1", "blend.toml:3: unknown key", "did you mean `sample-rate`?"),
        ("plan.sampel-rate = 1", "blend.toml:1: unknown key", "did you mean `sample-rate`?"),
        ("[status]\nseed = 1", "`status.seed` is no option of `blend status`", "takes json"),
        ("# none\n[plann]", "blend.toml:2: unknown table: [plann]", "did you mean [plan]?"),
        ('[plan]\nseed = "1"', '2: `plan.seed` must be a whole number: "1"', "Seed of"),
        ("[plan]\nseed = true", "must be a whole number: true", "Seed of"),
        ("sample-rate = [1]", "must be a number: [1]", "Share of"),
        ("policy = 5", "must be a text in quotes: 5", "How to order"),
        ("[plan]\nno-sample = 1", "must be true or false: 1", "Run nothing"),
        ('engine-arg = "x=1"', "must be a list of texts in quotes", "Any other option"),
        ('policy = "depth"', "`policy` must be one of auto, paper, ", "blend plan --help"),
        ("sample-rate = 7", "blend.toml:1: `sample-rate` must be at most 1: 7", "--help"),
        ("policy = dfs", "blend.toml:1:10: not TOML: invalid value", "texts in quotes"),
        ("[plan", "blend.toml: not TOML: expected", "texts in quotes"),
        ('seed = "', "blend.toml", "texts in quotes"),
        ('api-key = "s3cret"', "1: a secret does not belong", "OPENAI_API_KEY"),
        ('[engine-args]\nhf_token = "s3cret"', "2: a secret does not belong", "HF_TOKEN"),
    ],
)
def test_what_a_file_must_not_say_is_refused_with_its_place(here, capsys, text, said, hint) -> None:
    (here / "blend.toml").write_text(text)

    told = refused(capsys, "plan", "batch.blend")
    assert said in told
    assert hint in told.partition("\nhint: ")[2]
    assert "s3cret" not in told


def test_a_file_that_cannot_be_read_is_said(here, capsys) -> None:
    (here / "blend.toml").write_bytes(b"seed = 1 # \xff")

    assert "blend.toml: not UTF-8" in refused(capsys, "plan", "batch.blend")
    assert "no such settings file: none.toml" in refused(capsys, "--config", "none.toml", "status")
    assert "is a directory: " in refused(capsys, "--config", str(here), "status", "x")


@pytest.mark.usefixtures("here")
def test_a_bad_variable_is_named(capsys, monkeypatch) -> None:
    monkeypatch.setenv("BLEND_SEED", "often")

    told = refused(capsys, "plan", "batch.blend")
    assert "environment variable BLEND_SEED must be a whole number: often" in told


def test_help_is_there_for_whoever_mends_a_file(here, capsys) -> None:
    (here / "blend.toml").write_text("[plan]\nsampel-rate = 1")

    assert main(["plan", "--help"]) == 0
    assert "--sample-rate" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_config_shows_no_secrets_but_variables_that_mean_nothing(capsys, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    monkeypatch.setenv("BLEND_ENGINE_ARG", "api-key=s3cret block-size=8")
    monkeypatch.setenv("BLEND_POLCY", "dfs")

    assert main(["config"]) == 0
    said = capsys.readouterr().out
    assert "s3cret" not in said
    assert "api-key=*** block-size=8" in said
    assert "variable that names no option: BLEND_POLCY" in said
    assert settings(capsys, "plan")["api-key"]["origin"] == "OPENAI_API_KEY"


def test_config_tells_a_person_what_is_set_and_where(here, own, capsys) -> None:
    own.write_text("seed = 1")
    (here / "blend.toml").write_text('[plan]\npolicy = "dfs"')

    assert main(["config"]) == 0
    lines = [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert ["policy", "dfs", "blend.toml:2 `plan.policy`: plan"] in lines
    assert ["seed", "1", f"{own}:1 `seed`: run, plan, execute, simulate"] in lines
    assert main(["config", "plna"]) == 2
    assert "did you mean `blend config plan`?" in capsys.readouterr().err


def test_the_list_of_option_names_is_that_of_the_commands() -> None:
    found = {command: list(options) for command, options in options_by_command().items()}

    # Written where no command has to be imported: cli/option_names.py.
    assert {command: sorted(names) for command, names in OPTION_NAMES.items()} == {
        command: sorted(names) for command, names in found.items()
    }


def test_no_two_settings_share_a_variable() -> None:
    meanings: dict[str, set[str]] = {}
    for command, options in options_by_command().items():
        for name, option in options.items():
            own, common, *_ = option.envvar
            meanings.setdefault(own, set()).add(f"{command} {name}")
            meanings.setdefault(common, set()).add(name)

    assert {name for name, meant in meanings.items() if len(meant) > 1} == set()
    assert not INTERNAL & meanings.keys()
    assert PACE_VARIABLE in INTERNAL


def test_variables_of_the_program_are_documented() -> None:
    named = set(re.findall(r"`(BLEND_[A-Z_]+)`", DOCUMENT.read_text()))

    assert named >= INTERNAL


def test_the_document_lists_every_option() -> None:
    # Printed anew by `python -m tests.option_table`.
    assert option_table() in DOCUMENT.read_text()


def test_the_example_of_the_document_runs(here, tiny_tokenizer_dir, capsys) -> None:
    text = DOCUMENT.read_text()
    example = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    session = re.search(r"```console\n(.*?)```", text, re.DOTALL)
    assert example
    assert session
    (here / "blend.toml").write_text(example[1])
    ingested(here / "batch.blend", mixed(20), model=tiny_tokenizer_dir)
    capsys.readouterr()

    commands = [line[2:] for line in session[1].splitlines() if line.startswith("$ ")]
    for command, after in pairwise([*commands, ""]):
        assert main(shlex.split(command)[1:]) == 0
        told = session[1].partition(f"$ {command}\n")[2].partition(f"$ {after}")[0]
        printed = "".join(capsys.readouterr())
        assert [line for line in told.splitlines() if line not in printed] == []
