"""Real Redis: one server, a cluster, a master with sentinels; and a wire that can be made slow."""

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from tests.e2e.processes import Process, listens
from tests.standin.running import free_ports


class RedisServer:
    """One server on a free port; nothing is written to disk. *more*: options of redis-server's."""

    def __init__(self, folder: Path, *more: str, port: int | None = None) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("there is no redis-server here: apt-get install redis-server")
        self.port = port or free_ports(1)[0]
        self._command = [program, *more] if "--sentinel" in more else [program, "--save", "", *more]
        self._command += ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self._log = folder / f"redis-{self.port}.log"
        self.start()

    @property
    def url(self) -> str:
        """For sessions.url."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start, or start again with nothing remembered."""
        self.process = Process(self._command, self._log)
        self.process.until(lambda: listens(self.port), "redis-server")

    def stop(self) -> None:
        """As a machine that hangs: connections stay, nothing answers."""
        self.process.send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Hang no longer."""
        self.process.send(signal.SIGCONT)

    def end(self) -> None:
        """Gone, also if it hangs."""
        if self.process.alive:
            self.process.kill()


class RedisCluster:
    """Three masters with a third of the slots each, and a replica of the first."""

    def __init__(self, folder: Path, *more: str, login: str = "") -> None:
        self.servers = [
            RedisServer(
                folder, "--cluster-enabled", "yes", "--cluster-config-file", f"nodes-{port}.conf",
                "--cluster-node-timeout", "600", "--cluster-replica-validity-factor", "0",
                "--repl-diskless-sync-delay", "0", *more, port=port,
            )
            for port in free_ports(4)
        ]  # fmt: skip
        self.url = f"redis+cluster://{login}" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers[:2])
        password = login.rpartition(":")[2].rstrip("@") or None
        self.clients = [Redis(port=server.port, password=password, decode_responses=True) for server in self.servers]
        for client in self.clients[1:]:
            client.cluster("MEET", "127.0.0.1", self.servers[0].port)
        for client, (first, last) in zip(self.clients, ((0, 5460), (5461, 10922), (10923, 16383)), strict=False):
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
        first_id = self.clients[0].cluster("MYID")
        try:
            _until(lambda: self._all(cluster_known_nodes="4"))
            self.clients[3].cluster("REPLICATE", first_id)
            _until(lambda: self._all(cluster_state="ok"))
            _until(lambda: self.clients[0].info("replication")["connected_slaves"] == 1)
        except BaseException:
            self.end()
            raise

    def _all(self, **wanted: str) -> bool:
        return all(client.execute_command("CLUSTER INFO").items() >= wanted.items() for client in self.clients)

    def move(self, slot: int, there: int) -> None:
        """Give *slot* from the first master to the one numbered *there*."""
        owner = self.clients[there].cluster("MYID")
        for client in self.clients[:3]:
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", owner)

    def end(self) -> None:
        """Gone, all of them."""
        for client in self.clients:
            client.close()
        for server in self.servers:
            server.end()


class RedisSentinels:
    """A master, its replica, and three sentinels that watch them."""

    SERVICE = "sessions"

    def __init__(self, folder: Path) -> None:
        self.master, self.replica = RedisServer(folder), RedisServer(folder, "--repl-diskless-sync-delay", "0")
        with Redis(port=self.replica.port) as client:
            client.replicaof("127.0.0.1", self.master.port)
            _until(lambda: client.info("replication")["master_link_status"] == "up")
        self.sentinels = []
        for port in free_ports(3):
            config = folder / f"sentinel-{port}.conf"
            config.write_text(
                f"sentinel monitor {self.SERVICE} 127.0.0.1 {self.master.port} 2\n"
                f"sentinel down-after-milliseconds {self.SERVICE} 500\n"
                f"sentinel failover-timeout {self.SERVICE} 2000\n"
            )
            self.sentinels.append(RedisServer(folder, str(config), "--sentinel", port=port))
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/{self.SERVICE}/0"
        for sentinel in self.sentinels:
            with Redis(port=sentinel.port) as client:
                _until(lambda client=client: self._seen(client))

    def _seen(self, client: Redis) -> bool:
        state = client.sentinel_master(self.SERVICE)
        return int(state["num-other-sentinels"]) == 2 and int(state["num-slaves"]) == 1

    def end(self) -> None:
        """Gone, all of them."""
        for server in (*self.sentinels, self.master, self.replica):
            server.end()


def _until(true: Callable[[], bool], seconds: float = 20) -> None:
    give_up = time.monotonic() + seconds
    while True:
        with contextlib.suppress(RedisError):
            if true():
                return
        assert time.monotonic() < give_up
        time.sleep(0.05)


@contextlib.asynccontextmanager
async def slow_wire(port: int, seconds: float) -> AsyncIterator[int]:
    """A port behind which every answer of *port* comes *seconds* late, in order."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(inward: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        ends = [out]
        try:
            there_in, there_out = await asyncio.open_connection("127.0.0.1", port)
            ends.append(there_out)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass(inward, there_out, 0.0))
                group.create_task(_pass(there_in, out, seconds))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in ends:
                end.transport.abort()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0.01)  # who was let in a moment ago is served before he is sent away
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # an aborted connection closes in the loop's next turn


async def _pass(source: asyncio.StreamReader, to: asyncio.StreamWriter, seconds: float) -> None:
    while data := await source.read(65536):
        await asyncio.sleep(seconds)
        to.write(data)
        await to.drain()
    raise ConnectionResetError
