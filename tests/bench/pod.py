"""The least a pod can be: reads a request, answers the same 200. `python -m tests.bench.pod PORT…`"""

import asyncio
import re
import sys

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_BODY = b'{"object":"chat.completion","choices":[],"data":[{"id":"bench","object":"model"}],"model":"bench"}'
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)


class Pod(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._head = b""
        self._left = -1  # bytes of body to come; -1: still in the head; -2: chunked

    def data_received(self, data: bytes) -> None:
        if self._left == -1:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            found = _LENGTH.search(self._head, 0, end)
            data = self._head[end + 4 :]
            self._left = int(found.group(1)) if found else (-2 if b"chunked" in self._head[:end].lower() else 0)
        if self._left == -2:
            done = data.endswith(b"0\r\n\r\n")
        else:
            self._left -= len(data)
            done = self._left <= 0
        if done:
            self._head, self._left = b"", -1
            self._transport.write(_ANSWER)  # type: ignore[attr-defined]


async def main(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    for port in ports:
        await loop.create_server(Pod, "127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main([int(port) for port in sys.argv[1:]]))
