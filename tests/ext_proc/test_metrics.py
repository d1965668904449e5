"""Claims about what an operator can see."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from ext_proc import config
from ext_proc.app import Parts
from ext_proc.observe.metrics import Metrics
from ext_proc.protocol import Decide


def lines(metrics: Metrics) -> list[str]:
    return metrics.page().decode().splitlines()


def test_what_a_source_counts_for_itself_is_read_when_somebody_looks():
    metrics, source = Metrics(), SimpleNamespace(dropped=0)
    metrics.watch("sessions", source, "dropped")
    source.dropped = 3
    assert 'isogloss_source_events_total{event="dropped",source="sessions"} 3.0' in lines(metrics)


def test_a_count_that_is_not_there_is_noticed_at_the_start():
    with pytest.raises(AttributeError):
        Metrics().watch("sessions", object(), "dropped")


async def test_every_source_of_the_whole_service_can_be_seen(tmp_path: Path):
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("- {address: '10.0.0.1:8000'}")
    parts = Parts(
        config.Config(
            fleet=config.FleetConfig(file=nodes),
            sessions=config.Sessions(store="redis", url="redis://127.0.0.1:1/0", secret="sixteen bytes and more"),
        )
    )
    shown = [line for line in lines(parts.metrics) if line.startswith("isogloss_source_events_total{")]
    assert len(shown) == 9
    assert all(line.endswith(" 0.0") for line in shown)

    await parts.router.route(Decide({":path": "/v1/models"}, {}, None, None, rewritable=False))
    async with asyncio.timeout(5):
        while 'isogloss_places_total{source="none"} 1.0' not in lines(parts.metrics):
            await asyncio.sleep(0.01)
    await parts.close()
