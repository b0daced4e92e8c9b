"""A cluster of Ray on this machine: each of its nodes a command of its own, ended with it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.blend_process import family
from tests.tiny_engine import wait_until

RAY = [sys.executable, "-c", "import sys; from ray.scripts.scripts import main; sys.exit(main())"]
# A token of Ray that lies in the home folder of whoever runs the tests is none of theirs.
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
}

STATE = """
import ray
ray.init(logging_level="ERROR", log_to_driver=False)
from ray._private import state
alive = [one for one in state.actors().values() if one["State"] != "DEAD"]
groups = [one for one in ray.util.placement_group_table().values() if one["state"] != "REMOVED"]
nodes = [one for one in ray.nodes() if one["Alive"]]
print("state", len(nodes), len(alive), len(groups), int(ray.available_resources().get("CPU", 0)))
"""


@dataclass(frozen=True, slots=True)
class State:
    """What there is in a cluster: living nodes, actors and placement groups, and free CPUs."""

    nodes: int
    actors: int
    groups: int
    free_cpus: int


class RayNode:
    """One node, of one CPU; the folder of its own is removed with it."""

    def __init__(self, *arguments: str, environment: Mapping[str, str]):
        self._folder = Path(tempfile.mkdtemp(prefix="rn", dir="/tmp"))
        self.log = self._folder / "log"
        own = ["--num-cpus=1", f"--temp-dir={self._folder}", "--object-store-memory=80000000"]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*RAY, "start", "--block", *own, *arguments],
                env={**os.environ, **ENVIRONMENT, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self._process.poll() is None, self.log.read_text()
            return "Ray runtime started" in self.log.read_text()

        assert wait_until(ready), self.log.read_text()

    def actors(self) -> list[int]:
        """The actors of blend that run on it."""
        found = family(self._process.pid).items()
        return [pid for pid, name in found if name.startswith("ray::ReplicaHost")]

    def kill(self, name: str = "raylet") -> None:
        """Kill one of its processes; all else of it ends by itself."""
        (found,) = [
            pid for pid, path in family(self._process.pid).items() if path.endswith(f"/{name}")
        ]
        os.kill(found, signal.SIGKILL)

    def close(self) -> None:
        started = [self._process.pid, *family(self._process.pid)]
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class RayNodes:
    """A cluster whose nodes come and go."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.environment = {**ENVIRONMENT, "RAY_ADDRESS": self.address}
        self.nodes = [
            RayNode(
                "--head",
                f"--port={self.address.partition(':')[2]}",
                f"--ray-client-server-port={free_port()}",
                "--include-dashboard=false",
                environment={},
            )
        ]
        self.nodes[0].wait_ready()

    def add(self, **environment: str) -> RayNode:
        """Start another node, with more in its environment, and wait for it."""
        node = RayNode(f"--address={self.address}", environment=environment)
        self.nodes.append(node)
        node.wait_ready()
        return node

    def remove(self, node: RayNode) -> None:
        """End a node; the others know it some seconds later."""
        self.nodes.remove(node)
        node.close()

    def state(self) -> State:
        """Look at it as another driver does."""
        command = [sys.executable, "-c", STATE]
        environment = {**os.environ, **self.environment}
        seen = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        # Ray, too, writes there what its nodes say, whatever it was asked to.
        (told,) = (line for line in seen.stdout.splitlines() if line.startswith("state "))
        return State(*map(int, told.split()[1:]))

    def close(self) -> None:
        for node in reversed(self.nodes):
            node.close()


@contextmanager
def ray_nodes() -> Iterator[RayNodes]:
    cluster = RayNodes()
    try:
        yield cluster
    finally:
        cluster.close()


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
