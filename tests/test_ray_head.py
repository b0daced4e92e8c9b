"""A head of Ray that is silent for long ends a run; one that comes back in time does not."""

import socket

import pytest

from blend.core.engines import ray_head
from blend.core.engines.ray_head import RayHead
from blend.core.errors import RESUMABLE, BlendError


@pytest.fixture(autouse=True)
def _looked_at_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_head, "LOOK_S", 0.0)


def test_a_head_may_be_silent_for_a_while() -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        address = "127.0.0.1:{1}".format(*port.getsockname())
        head = RayHead(address)
        head.look()
        assert head.answers
    head.look()
    assert not head.answers
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        head.look()
        assert head.answers
        head.wait()


def test_a_head_that_stays_silent_ends_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        head = RayHead("127.0.0.1:{1}".format(*port.getsockname()))
    monkeypatch.setattr(ray_head, "SILENCE_S", 0.0)

    with pytest.raises(BlendError, match="does not answer any more") as caught:
        head.wait()

    assert caught.value.exit_code == RESUMABLE
    assert "--resume" in (caught.value.hint or "")
