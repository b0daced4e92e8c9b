"""Replicas on a cluster that is there: two nodes of one machine, left as they were."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blend.cli.app import main
from blend.store.job import Job
from tests.blend_process import BlendProcess, alive, assert_sound, blend, finished
from tests.ray_nodes import RayNodes, State, free_port, ray_nodes
from tests.test_ray import ROWS, SIM, assert_every_row_has_one_result, planned_job
from tests.tiny_engine import wait_until

__all__ = ["planned_job"]

SITE = """
import importlib.metadata, sys
if {hidden}:
    sys.modules["blend"] = None
told = importlib.metadata.version
importlib.metadata.version = lambda name: "9.9" if name == "blend-batch" else told(name)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    with ray_nodes() as nodes:
        nodes.add()
        yield nodes


@pytest.fixture
def job(
    tmp_path: Path, planned_job: Path, cluster: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> Path:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    return Path(shutil.copy(planned_job, tmp_path / "batch.blend"))


def argv(job: Path, address: str, replicas: int = 2) -> list[str]:
    return ["execute", str(job), *SIM, "-dp", str(replicas), "--ray-address", address]


def wait_for_results(process: BlendProcess, job: Path, rows: int) -> None:
    def reached() -> bool:
        assert Path(f"/proc/{process.pid}").exists(), process.stderr
        return finished(job) >= rows

    assert wait_until(reached), process.stderr


def assert_clean(cluster: RayNodes) -> None:
    """Nothing of a driver that has gone is left, and all that it had is free again."""
    clean = State(nodes=2, actors=0, groups=0, free_cpus=2)
    assert wait_until(lambda: cluster.state() == clean), cluster.state()
    assert [node.actors() for node in cluster.nodes] == [[], []]


@pytest.mark.cluster
@pytest.mark.parametrize("auto", [False, True])
def test_each_node_gets_a_replica_and_the_cluster_stays(
    job: Path, cluster: RayNodes, *, auto: bool
) -> None:
    with blend(argv(job, "auto" if auto else cluster.address), job.with_suffix(".log")) as process:
        wait_for_results(process, job, 20)
        spread = [len(node.actors()) for node in cluster.nodes]

        assert process.exit_code() == 0, process.stderr
    assert spread == [1, 1]
    assert_every_row_has_one_result(job)
    assert_clean(cluster)


@pytest.mark.cluster
@pytest.mark.parametrize("ended", [signal.SIGINT, signal.SIGKILL])
def test_a_driver_that_ends_early_leaves_the_cluster_clean_and_the_job_goes_on(
    job: Path, cluster: RayNodes, ended: signal.Signals
) -> None:
    with blend(argv(job, cluster.address), job.with_suffix(".log")) as process:
        wait_for_results(process, job, 20)
        os.kill(process.pid, ended)

        assert process.exit_code() == (4 if ended == signal.SIGINT else -ended), process.stderr
    assert_clean(cluster)
    assert 20 <= finished(job) < ROWS

    assert main(["execute", str(job), *SIM, "--resume"]) == 0
    assert_every_row_has_one_result(job)


@pytest.mark.cluster
def test_who_finds_no_room_is_told_what_is_missing(job: Path, cluster: RayNodes) -> None:
    other = Path(shutil.copy(job, job.with_name("other.blend")))
    with blend(argv(other, cluster.address, 3), job.with_suffix(".three")) as process:
        assert process.exit_code() == 4
        assert (
            "3 replicas need 1 CPU each, and the Ray cluster has room for 2: "
            "its machines have 1 CPU, 1 CPU" in " ".join(process.stderr.split())
        )
    with blend(argv(job, cluster.address), job.with_suffix(".log")) as process:
        wait_for_results(process, job, 20)
        with process.stopped():
            words = ["import sys; from blend.core.engines import ray_cluster"]
            words += ["from blend.cli.app import main; ray_cluster.PLACE_S = 1", "main()"]
            refused = subprocess.run(
                [sys.executable, "-c", "; ".join(words), *argv(other, cluster.address)],
                capture_output=True,
                text=True,
                check=False,
            )

        assert process.exit_code() == 0, process.stderr
    assert "2 replicas need 2 CPUs, and others use the Ray cluster: free are 0 CPUs" in " ".join(
        refused.stderr.split()
    )
    assert_clean(cluster)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("hidden", "said"),
    [
        (True, "a replica cannot start on its machine: ModuleNotFoundError"),
        (False, "blend 9.9 is installed on"),
    ],
)
def test_a_node_without_our_blend_is_named_with_what_to_install(
    job: Path, cluster: RayNodes, tmp_path: Path, *, hidden: bool, said: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITE.format(hidden=hidden))
    foreign = cluster.add(PYTHONPATH=str(tmp_path))
    with blend(argv(job, cluster.address, 3), job.with_suffix(".log")) as process:
        assert process.exit_code() in (4, 6)
        told = " ".join(process.stderr.split())
        assert said in told
        assert "pip install 'blend-batch[ray]==" in told
    cluster.remove(foreign)
    assert finished(job) == 0
    assert_clean(cluster)


@pytest.mark.cluster
def test_what_a_killed_node_had_runs_on_the_other_which_may_die_too(
    job: Path, cluster: RayNodes
) -> None:
    with blend(argv(job, cluster.address), job.with_suffix(".log")) as process:
        wait_for_results(process, job, 20)
        lost = cluster.nodes[1]
        gone = set(lost.actors())
        lost.kill()
        assert wait_until(lambda: "its process is gone" in process.stderr), process.stderr
        wait_for_results(process, job, finished(job) + 10)
        assert not alive(gone)
        # With the last of them all are lost, and there is room for one alone to start anew.
        os.kill(cluster.nodes[0].actors()[0], signal.SIGKILL)

        assert process.exit_code() == 0, process.stderr
    cluster.remove(lost)
    cluster.add()
    assert_every_row_has_one_result(job)
    assert_clean(cluster)
    with Job.open(job) as opened:
        # What was inside at both ends may be what kills: behind all else it runs apart, in halves.
        inside_twice = [opened.attempts(row) for row in range(ROWS)].count(3)
        assert [run.outcome for run in opened.runs()] == [
            "engine died",
            *["finished"] * (1 + min(inside_twice, 2)),
        ]
    assert_sound(job)


@pytest.mark.cluster
@pytest.mark.parametrize("whole_machine", [False, True])
def test_without_its_head_a_run_ends_with_what_helps_and_goes_on_elsewhere(
    job: Path, cluster: RayNodes, *, whole_machine: bool
) -> None:
    with ray_nodes() as other:
        other.add()
        with blend(argv(job, other.address), job.with_suffix(".log")) as process:
            wait_for_results(process, job, 20)
            head, node = other.nodes
            started = {*head.actors(), *node.actors()}
            head.close() if whole_machine else head.kill("gcs_server")

            assert process.exit_code() == 4, process.stderr
        told = " ".join(process.stderr.split())
        assert "the head of the Ray cluster does not answer any more: " in told
        assert "the same command goes on, `blend execute` with `--resume`" in told
        assert wait_until(lambda: not alive(started))
    assert 20 <= finished(job) < ROWS
    assert_sound(job)

    with blend([*argv(job, cluster.address), "--resume"], job.with_suffix(".again")) as again:
        assert again.exit_code() == 0, again.stderr
    assert_every_row_has_one_result(job)
    assert_clean(cluster)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:{closed}", "no Ray cluster answers: 127.0.0.1:"),
        ("127.0.0.1", "no address of a Ray cluster: 127.0.0.1"),
        ("ray://127.0.0.1:10001", "no address of a Ray cluster: ray://127.0.0.1:10001"),
    ],
)
def test_an_address_without_a_cluster_is_refused_before_ray_is_asked(
    tmp_path: Path,
    planned_job: Path,
    address: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = Path(shutil.copy(planned_job, tmp_path / "batch.blend"))

    assert main(argv(job, address.format(closed=free_port()))) in (2, 4)

    told = capsys.readouterr().err
    assert said in told
    assert "hint: " in told
    assert "ray" not in sys.modules
