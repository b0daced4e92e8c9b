"""A job on a network file system is warned of."""

from pathlib import Path

import pytest

from blend.cli import job_disk
from blend.cli.app import main
from blend.cli.job_disk import network_file_system
from tests.batch_files import chat, write_requests

MOUNTS = r"""overlay / overlay rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/export /data nfs4 rw,vers=4.2 0 0
/dev/sdb /data/fast ext4 rw 0 0
//pc/share /data/my\040share cifs rw 0 0
me@host: /ssh fuse.sshfs rw 0 0
encfs /private fuse.encfs rw 0 0
/dev/sdc /ssh/over ext4 rw 0 0
other:/ /ssh/over nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/j.db", None),
        ("/tmp/j.db", None),
        ("/data/j.db", "nfs4"),
        ("/data2/j.db", None),
        ("/data/fast/j.db", None),
        ("/data/my share/j.db", "cifs"),
        ("/ssh/deep/j.db", "fuse.sshfs"),
        ("/ssh/over/j.db", "nfs"),
        ("/private/j.db", None),
    ],
)
def test_the_deepest_and_latest_mount_decides(path: str, kind: str | None) -> None:
    assert network_file_system(Path(path), MOUNTS) == kind


def test_whoever_makes_or_runs_a_job_there_is_warned(
    tmp_path: Path,
    tiny_tokenizer_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("server:/ / nfs4 rw 0 0\n")
    monkeypatch.setattr(job_disk, "_MOUNTS", mounts)
    source = write_requests(tmp_path / "in.jsonl", [chat("a", "hello", max_tokens=3)])
    job = str(tmp_path / "j.blend")
    for command in (
        ["ingest", str(source), "--job", job, "--model", str(tiny_tokenizer_dir)],
        ["plan", job, "--engine", "sim", "--hardware", "a100-80g"],
    ):
        assert main(command) == 0
        assert capsys.readouterr().err.count("network file system (nfs4)") == 1
