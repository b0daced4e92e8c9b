"""Is the job on a disk that SQLite can rely on? A network file system may lock and share badly."""

import logging
import re
from pathlib import Path

logger = logging.getLogger(__name__)

# FUSE file systems other than these are local ones, such as an overlay or an encrypted folder.
_NETWORK = re.compile(
    r"(nfs\d?|cifs|smb\d?|smbfs|9p|afs|ceph|lustre|gpfs|beegfs|glusterfs|pvfs2"
    r"|fuse\.(sshfs|s3fs|gcsfuse|rclone|glusterfs|ceph|juicefs|goofys))"
)
_MOUNTS = Path("/proc/self/mounts")


def warn_of_network_disk(job: Path) -> None:
    """Say so on stderr when the job is on a network file system."""
    if kind := network_disk(job):
        logger.warning(
            f"the job is on a network file system ({kind}), where its locks may not hold and a "
            "power cut may cost it: a local disk is safer, and faster"
        )


def network_disk(path: Path) -> str | None:
    """Return the type of the network file system that holds *path*; None for a local one."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return None
    return network_file_system(path.resolve(), mounts)


def network_file_system(path: Path, mounts: str) -> str | None:
    """Return the type of the network file system that holds *path*; None for a local one.

    *mounts* is in the form of Linux's /proc/mounts; *path* is absolute, without links.
    """
    deepest, kind = Path(), ""
    for line in mounts.splitlines():
        _, mounted, kind_here, *_ = line.split(" ")
        # Blanks and the like stand there as octal numbers.
        point = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mounted))
        # Of two at one place, the later one hides the earlier.
        if path.is_relative_to(point) and len(point.parts) >= len(deepest.parts):
            deepest, kind = point, kind_here
    return kind if _NETWORK.fullmatch(kind) else None
