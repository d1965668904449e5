"""Claims about which nodes there are."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.errors import ConfigError
from ext_proc.sources.discovery import FileNodes, StaticNodes, valid
from policy.live import LiveFleet
from policy.rules import Watermarks
from policy.types import Node

QUICK = 0.01
ONE = "- {address: '10.0.0.1:8000', region: eu-west}\n"
TWO = ONE + "- {address: '[fd00::2]:8000', models: [small], identity: pod-2}\n"


def complaint(*addresses: str) -> str:
    with pytest.raises(ConfigError) as told:
        valid(Node(address=address) for address in addresses)
    return str(told.value)


@pytest.mark.parametrize(
    "address", ["10.0.0.1:8000", "[fd00::1]:8000", "[::1]:1", "[::ffff:10.0.0.1]:65535", "[2001:db8::]:80"]
)
def test_an_address_as_envoy_prints_it_is_taken(address: str):
    assert valid([Node(address=address)])[0].address == address


@pytest.mark.parametrize("address", ["pod-0.vllm.svc:8000", "localhost:8000", "vllm:80"])
def test_a_host_name_is_refused_as_a_host_name(address: str):
    assert "a host name is not an address" in complaint(address)
    assert repr(address) in complaint(address)


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:http", "[::1]", ""]
)
def test_an_address_without_a_port_is_refused(address: str):
    assert "has no port: expected ip:port" in complaint(address)


@pytest.mark.parametrize(
    ("address", "right"),
    [
        ("10.0.0.1:08000", "10.0.0.1:8000"),
        ("[FD00::1]:8000", "[fd00::1]:8000"),
        ("[fd00:0:0::1]:8000", "[fd00::1]:8000"),
        ("fd00::1:8000", "[fd00::1]:8000"),
        ("[::ffff:a00:1]:8000", "[::ffff:10.0.0.1]:8000"),
        ("[10.0.0.1]:8000", "10.0.0.1:8000"),
    ],
)
def test_another_spelling_is_refused_and_the_right_one_given(address: str, right: str):
    assert f"must be spelled {right!r}" in complaint(address)
    assert valid([Node(address=right)])


@pytest.mark.parametrize(
    "address", ["[fe80::1%eth0]:8000", "010.0.0.1:8000", "10.0.0.1:8000 ", "10.0.0.1:٨", "10.0.0.1:8000\n"]
)
def test_what_envoy_could_not_dial_is_refused(address: str):
    assert complaint(address)


@given(st.text(max_size=60))
def test_any_other_text_is_refused_by_name(text: str):
    assert complaint(text).startswith("fleet: ")


def test_every_address_is_listed_once():
    assert "10.0.0.1:8000 is listed twice" in complaint("10.0.0.2:8000", "10.0.0.1:8000", "10.0.0.1:8000")


async def test_listed_nodes_never_change():
    node = Node(address="10.0.0.1:8000")
    listed = StaticNodes([node])
    assert listed.nodes() == (node,)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(listed.watch(pytest.fail), 0.05)


def test_a_file_says_which_nodes_there_are(tmp_path: Path):
    path = tmp_path / "nodes.yaml"
    path.write_text(TWO)
    assert FileNodes(path).nodes() == (
        Node(address="10.0.0.1:8000", region="eu-west"),
        Node(address="[fd00::2]:8000", models=("small",), identity="pod-2"),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "fleet.file: cannot read .*nodes.yaml: No such file"),
        ("", "nodes.yaml: .*array"),
        ("- {adress: '10.0.0.1:80'}", "nodes.yaml: .*adress: unknown key; did you mean 'address'"),
        ("- {address: '10.0.0.1:80', qps_limit: much}", "nodes.yaml: .*qps_limit.*found 'much'"),
        ("- {address: vllm:80}", "nodes.yaml: .*'vllm:80'.*host name"),
        ("- [unclosed", "nodes.yaml: not valid YAML"),
    ],
)
def test_a_wrong_file_is_refused_by_file_field_and_value(text: str | None, says: str, tmp_path: Path):
    path = tmp_path / "nodes.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        FileNodes(path).nodes()


@asynccontextmanager
async def followed(path: Path) -> AsyncIterator[tuple[FileNodes, list[int]]]:
    """A watched file and the sizes of the fleets it has told of since."""
    discovery, told = FileNodes(path, QUICK), []
    discovery.nodes()
    task = asyncio.create_task(discovery.watch(lambda nodes: told.append(len(nodes))))
    try:
        yield discovery, told
    finally:
        assert not task.done(), task
        task.cancel()


async def until(told: list[int], expected: list[int]) -> None:
    async with asyncio.timeout(10):
        while told != expected:
            await asyncio.sleep(QUICK)


async def test_a_new_file_is_taken_up_however_it_arrives(tmp_path: Path):
    path, new = tmp_path / "nodes.yaml", tmp_path / "new.yaml"
    path.write_text(ONE)
    async with followed(path) as (_, told):
        path.write_text(TWO)
        await until(told, [2])
        new.write_text(ONE)
        os.replace(new, path)
        await until(told, [2, 1])
        new.write_text("[]")
        path.unlink()
        path.symlink_to(new)
        await until(told, [2, 1, 0])


async def test_a_wrong_new_file_is_counted_and_logged_once_and_the_old_nodes_stand(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "nodes.yaml"
    path.write_text(ONE)
    async with followed(path) as (discovery, told):
        path.write_text("- {address: nowhere:1}")
        async with asyncio.timeout(10):
            while discovery.refused < 1:
                await asyncio.sleep(QUICK)
            path.unlink()
            while discovery.refused < 2:
                await asyncio.sleep(QUICK)
        await asyncio.sleep(5 * QUICK)
        assert (discovery.refused, told) == (2, [])
        assert len([r for r in caplog.records if "keeping the nodes we have" in r.message]) == 2
        path.write_text(TWO)
        await until(told, [2])


async def test_a_file_that_comes_and_goes_moves_the_live_fleet(tmp_path: Path):
    path = tmp_path / "nodes.yaml"
    path.write_text(ONE)
    discovery = FileNodes(path, QUICK)
    fleet = LiveFleet(discovery.nodes(), Watermarks())
    fleet.sent("10.0.0.1:8000", 1.0)
    task = asyncio.create_task(discovery.watch(fleet.replace))
    path.write_text(TWO)
    async with asyncio.timeout(10):
        while len(fleet.fleet) != 2:
            await asyncio.sleep(QUICK)
    task.cancel()
    assert list(fleet.fleet.sent) == [1.0, 0.0]
