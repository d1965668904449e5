"""How Envoy reaches us: TLS, mutual TLS, new certificates under load, Unix sockets, and idle connections."""

import os
import socket
import ssl
import stat
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ext_proc import names
from tests.e2e.load import BODY, load
from tests.e2e.processes import SERVE, Process
from tests.e2e.world import World, until

CHAT = "/v1/chat/completions"


class Papers:
    """A CA, our certificate, Envoy's, and the settings that name them."""

    def __init__(self, folder: Path) -> None:
        self.ca, self._folder = trustme.CA(), folder
        self.ca.cert_pem.write_to_path(self.path("ca.pem"))
        self.envoy = self.ca.issue_cert("envoy.test")
        self.envoy.private_key_pem.write_to_path(self.path("envoy.key"))
        self.envoy.cert_chain_pems[0].write_to_path(self.path("envoy.pem"))
        self.renew()

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def renew(self) -> None:
        """Another certificate and key in the same files, one after the other, as some tools do it."""
        ours = self.ca.issue_cert("127.0.0.1", "isogloss.test")
        for name, blob in (("ours.pem", ours.cert_chain_pems[0]), ("ours.key", ours.private_key_pem)):
            blob.write_to_path(self.path(f"{name}.new"))
            os.replace(self.path(f"{name}.new"), self.path(name))

    def settings(self, *, mutual: bool = False, envoy: bool = True, **server: Any) -> dict[str, Any]:
        ours = {"certificate": self.path("ours.pem"), "key": self.path("ours.key")}
        theirs = {"ca": self.path("ca.pem")}
        if mutual:
            ours["client_ca"] = self.path("ca.pem")
        if mutual and envoy:
            theirs |= {"certificate": self.path("envoy.pem"), "key": self.path("envoy.key")}
        return {"server": {"tls": ours, **server}, "envoy": {"tls": theirs}}

    def serving(self, port: int, certificate: trustme.LeafCert | None = None, name: str = "127.0.0.1") -> bool:
        """Whether a client with that *certificate* gets an answer."""
        credentials = grpc.ssl_channel_credentials(
            self.ca.cert_pem.bytes(),
            certificate and certificate.private_key_pem.bytes(),
            certificate and certificate.cert_chain_pems[0].bytes(),
        )
        with grpc.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            request = health_pb2.HealthCheckRequest(service=names.SERVICE)
            try:
                health_pb2_grpc.HealthStub(channel).Check(request, timeout=3)
            except grpc.RpcError:
                return False
            return True


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


def decided(world: World, times: int = 5) -> bool:
    """So many requests are answered, each with a decision of ours."""
    with world.client() as client:
        answers = [client.post(CHAT, json=BODY) for _ in range(times)]
    assert [answer.status_code for answer in answers] == [200] * times
    return all(names.POOL in answer.headers for answer in answers)


@pytest.mark.parametrize("mode", ["buffered", "duplex"])
def test_envoy_reaches_us_over_tls_and_nobody_does_in_plain(new_world, papers: Papers, mode: str) -> None:
    world: World = new_world(mode, settings=papers.settings())
    assert decided(world)
    assert papers.serving(world.config.server.port)
    with grpc.insecure_channel(f"127.0.0.1:{world.config.server.port}") as channel, pytest.raises(grpc.RpcError):
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2)


def test_a_certificate_of_another_name_is_not_believed(new_world, papers: Papers) -> None:
    settings = papers.settings()
    settings["envoy"]["tls"]["name"] = "somebody.else"
    world: World = new_world(settings=settings, start=False)
    world.start_service()
    time.sleep(1.5)  # three health checks
    assert world.envoy.healthy_workers() == 0
    assert not decided(world)


def test_with_mutual_tls_only_who_has_a_certificate_is_served(new_world, papers: Papers) -> None:
    world: World = new_world(settings=papers.settings(mutual=True))
    assert decided(world)
    port = world.config.server.port
    assert papers.serving(port, papers.envoy)
    assert not papers.serving(port)
    assert not papers.serving(port, trustme.CA().issue_cert("envoy.test"))


@pytest.mark.parametrize("mode", ["buffered", "duplex"])
def test_a_new_certificate_under_load_costs_no_request(new_world, papers: Papers, mode: str) -> None:
    world: World = new_world(mode, settings=papers.settings(mutual=True))
    port = world.config.server.port
    first = _shown(port, papers)
    with load(world) as traffic:
        time.sleep(0.7)
        papers.renew()
        until(lambda: _shown(port, papers) != first, "the new certificate", 10)
        time.sleep(0.7)
    assert set(traffic.statuses()) == {200}, traffic.statuses()
    assert traffic.undecided(0) == 0
    assert len(traffic.answers) > 100


def test_files_that_do_not_fit_together_are_not_used(new_world, papers: Papers) -> None:
    world: World = new_world(settings=papers.settings())
    first = _shown(world.config.server.port, papers)
    papers.ca.issue_cert("127.0.0.1").private_key_pem.write_to_path(papers.path("ours.key"))
    until(lambda: "is not that of the certificate" in world.service.said(), "the refusal", 10)
    assert _shown(world.config.server.port, papers) == first
    assert decided(world)


def test_two_workers_behind_unix_sockets_that_only_who_may_can_open(new_world, tmp_path: Path) -> None:
    path = tmp_path / "iso.sock"
    world: World = new_world("duplex", workers=2, settings={"server": {"socket": str(path), "socket_mode": "600"}})
    assert decided(world, 8)
    for one in (path, tmp_path / "iso.sock.1"):
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
        assert world.envoy.healthy_workers() == 2
    second = Process([*SERVE, world.folder / "isogloss.yaml", "--worker", "0"], world.folder / "second.log")
    assert second.wait(60) == 1
    assert f"another process listens on {path}" in second.said()
    world.service.kill()
    world.wait_for_workers(0)
    world.start_service()  # what a killed one left behind is no obstacle
    world.wait_for_workers(2)
    assert decided(world)


def test_tls_works_over_a_unix_socket_too(new_world, papers: Papers, tmp_path: Path) -> None:
    settings = papers.settings(mutual=True, socket=str(tmp_path / "iso.sock"))
    settings["envoy"]["tls"]["name"] = "isogloss.test"
    assert decided(new_world(settings=settings))


def test_a_connection_pinged_each_second_is_there_after_a_pause(new_world) -> None:
    """Pings without traffic are what gRPC answers with GOAWAY unless told that they are welcome."""
    world: World = new_world("buffered")
    assert decided(world)
    before = world.envoy.stats("cluster.isogloss.upstream_cx")
    time.sleep(8)
    assert decided(world)
    after = world.envoy.stats("cluster.isogloss")
    assert after["cluster.isogloss.upstream_cx_close_notify"] == 0
    assert after["cluster.isogloss.http2.keepalive_timeout"] == 0
    assert after["cluster.isogloss.upstream_cx_destroy"] == before["cluster.isogloss.upstream_cx_destroy"]


def _shown(port: int, papers: Papers) -> bytes:
    """The certificate a new connection is shown."""
    context = ssl.create_default_context(cadata=papers.ca.cert_pem.bytes().decode())
    context.load_cert_chain(papers.path("envoy.pem"), papers.path("envoy.key"))
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
    ):
        shown = sock.getpeercert(binary_form=True)
        assert shown is not None
        return shown
