"""A compressed body in plain bytes: a piece at a time, up to a size, up to a moment.

The bytes sent on are the client's own; what is unpacked is only read.
"""

import asyncio
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

IN_BYTES = 65_536
OUT_BYTES = 262_144
"""A piece: about a millisecond's work, after which others get their turn."""
_WINDOW_LOG = 23
"""8 MiB, the most RFC 9659 allows zstd on the web; a frame that asks for more memory is refused."""


class Unread(Exception):
    """The body stays closed; the text is one word for counters."""


class _Stream(Protocol):
    """One compressed stream; fed bytes until it ends."""

    def feed(self, data: bytes) -> bytes:
        """At most about OUT_BYTES of what *data*, and what was fed before, becomes."""
        ...

    @property
    def full(self) -> bool:
        """There is more to come before more can be fed."""
        ...

    @property
    def rest(self) -> bytes | None:
        """What was fed and lies behind the stream's end; None: it has not ended."""
        ...


class _Zlib:
    def __init__(self, bits: int) -> None:
        self._inflate = zlib.decompressobj(bits)
        self.full = False

    def feed(self, data: bytes) -> bytes:
        out = self._inflate.decompress(self._inflate.unconsumed_tail + data, OUT_BYTES)
        self.full = len(out) == OUT_BYTES and not self._inflate.eof
        return out

    @property
    def rest(self) -> bytes | None:
        return self._inflate.unused_data if self._inflate.eof else None


class _Zstd:
    def __init__(self) -> None:
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
        self._frame = zstd.ZstdDecompressor(options=options)

    def feed(self, data: bytes) -> bytes:
        return self._frame.decompress(data, OUT_BYTES)

    @property
    def full(self) -> bool:
        return not (self._frame.eof or self._frame.needs_input)

    @property
    def rest(self) -> bytes | None:
        return self._frame.unused_data if self._frame.eof else None


class _Brotli:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()
        self.full = False

    def feed(self, data: bytes) -> bytes:
        out: bytes = self._stream.process(data, output_buffer_limit=OUT_BYTES)
        more = len(out) >= OUT_BYTES or not self._stream.can_accept_more_data()
        self.full = more and not self._stream.is_finished()
        return out

    @property
    def rest(self) -> bytes | None:
        return b"" if self._stream.is_finished() else None


def _deflate(data: bytes) -> _Stream:
    """As RFC 9110 says, with zlib's two bytes in front; or bare, as many clients send it."""
    wrapped = len(data) > 1 and data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
    return _Zlib(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)


_STREAMS: dict[str, Callable[[bytes], _Stream]] = {
    "gzip": lambda _: _Zlib(16 + zlib.MAX_WBITS),
    "x-gzip": lambda _: _Zlib(16 + zlib.MAX_WBITS),
    "deflate": _deflate,
    "br": lambda _: _Brotli(),
    "zstd": lambda _: _Zstd(),
}


async def plain(encoding: str, body: bytes, *, most: int, until: float) -> bytes:
    """*body* unpacked: at most *most* bytes, by *until* on the event loop's clock.

    Raises Unread("body-encoding-unknown" | "body-damaged" | "body-unpacks-too-large" | "body-unpacks-too-slowly").
    """
    clock = asyncio.get_running_loop().time
    out: list[bytes] = []
    size = 0
    for piece in pieces(encoding.strip().lower(), body):
        if out:  # what comes in one piece is read, however late it is
            if clock() > until:
                raise Unread("body-unpacks-too-slowly")
            await asyncio.sleep(0)
        out.append(piece)
        size += len(piece)
        if size > most:
            raise Unread("body-unpacks-too-large")
    return b"".join(out)


def pieces(encoding: str, body: bytes) -> Iterator[bytes]:
    """The same, a piece at a time. Raises Unread."""
    if encoding not in _STREAMS:
        raise Unread("body-encoding-unknown")
    begin = _STREAMS[encoding]
    try:
        stream = begin(body)
        at = 0
        while True:
            fed = b"" if stream.full else body[at : at + IN_BYTES]
            at += len(fed)
            yield stream.feed(fed)
            rest = stream.rest
            if rest is not None:
                at -= len(rest)
                if at >= len(body):
                    return
                stream = begin(body[at : at + 2])  # gzip and zstd may have another stream behind the first
            elif at >= len(body) and not stream.full:
                raise Unread("body-damaged")  # cut off
    except (zlib.error, zstd.ZstdError, brotli.error):
        raise Unread("body-damaged") from None
