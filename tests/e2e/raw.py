"""HTTP/1.1 by hand, for what client and server libraries will not do."""

import asyncio
import re
import socket
from dataclasses import dataclass, field


@dataclass
class RawPod:
    """An upstream that keeps every request's bytes, trailers too, and answers 200."""

    port: int
    requests: list[bytes] = field(default_factory=list)
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Be gone."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await self._body(reader, head.lower())
                self.requests.append(head + body)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _body(self, reader: asyncio.StreamReader, head: bytes) -> bytes:
        length = re.search(rb"\r\ncontent-length: (\d+)", head)
        if length:
            return await reader.readexactly(int(length[1]))
        if b"\r\ntransfer-encoding: chunked" not in head:
            return b""
        out = b""
        while True:
            size = await reader.readuntil(b"\r\n")
            out += size
            if int(size, 16) == 0:
                break
            out += await reader.readexactly(int(size, 16) + 2)
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            out += line
        return out


@dataclass
class WebSocketEcho:
    """An upstream that takes any upgrade and then gives back every byte; no frames, which nobody between looks at."""

    port: int
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Be gone."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"\r\nupgrade: websocket" in head.lower():
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
        writer.close()


def say(port: int, *parts: bytes, seconds: float = 30) -> bytes:
    """Send *parts*, each in a packet of its own, and read until the other side closes or answers in full."""
    with socket.create_connection(("127.0.0.1", port), seconds) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            sock.sendall(part)
        return read_answer(sock)


def read_answer(sock: socket.socket) -> bytes:
    """One answer with content-length or chunks, or all until the end of the connection."""
    got = b""
    while piece := sock.recv(65536):
        got += piece
        head, split, body = got.partition(b"\r\n\r\n")
        if not split or head.startswith(b"HTTP/1.1 100"):
            got = got[len(head) + 4 :] if split else got
            continue
        length = re.search(rb"\r\ncontent-length: (\d+)", head.lower())
        if (length and len(body) >= int(length[1])) or (not length and body.endswith(b"0\r\n\r\n")):
            break
    return got


def chunked(*pieces: bytes) -> bytes:
    """A chunked body without its end."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
