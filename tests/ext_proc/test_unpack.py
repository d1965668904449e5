"""Compressed bodies: read in small pieces, up to a size and a moment; what cannot be read raises one word."""

import asyncio
import gzip
import os
import time
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc import unpack
from ext_proc.unpack import OUT_BYTES, zstd

MIB = 1024 * 1024


def bare(data: bytes) -> bytes:
    """Deflate without zlib's head, as many clients send it."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-Gzip ", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", bare),
    "br": ("br", brotli.compress),
    "zstd": ("zstd", zstd.compress),
}
TEXT = "Why is the sky blue? Ångström 🦊 ".encode() * 20_000
each = pytest.mark.parametrize("how", PACKED)


async def plain(encoding: str, body: bytes, most: int = 16 * MIB, seconds: float = 30.0) -> bytes:
    return await unpack.plain(encoding, body, most=most, until=asyncio.get_running_loop().time() + seconds)


async def unread(*args: Any, **limits: Any) -> str:
    with pytest.raises(unpack.Unread) as caught:
        await plain(*args, **limits)
    return str(caught.value)


@each
@pytest.mark.parametrize("data", [b"", b"x", TEXT, os.urandom(3 * MIB), bytes(OUT_BYTES), bytes(2 * OUT_BYTES)])
async def test_what_was_packed_comes_out(how, data):
    encoding, pack = PACKED[how]
    assert await plain(encoding, pack(data)) == data


@each
async def test_a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_not(how):
    encoding, pack = PACKED[how]
    body = pack(TEXT)
    assert await plain(encoding, body, most=len(TEXT)) == TEXT
    assert await unread(encoding, body, most=len(TEXT) - 1) == "body-unpacks-too-large"


@pytest.mark.parametrize("how", ["gzip", "zstd"])
async def test_streams_one_behind_the_other_are_one_body(how):
    encoding, pack = PACKED[how]
    assert await plain(encoding, pack(b"a" * 100_000) + pack(b"") + pack(b"b")) == b"a" * 100_000 + b"b"


@each
@pytest.mark.parametrize("at", [1, 5, 0.5, -20, -1])
async def test_a_stream_cut_off_is_damaged(how, at):
    encoding, pack = PACKED[how]
    body = pack(os.urandom(1000) + TEXT)
    assert await unread(encoding, body[: int(len(body) * at) if isinstance(at, float) else at]) == "body-damaged"


@each
async def test_something_behind_the_stream_is_damage(how):
    encoding, pack = PACKED[how]
    assert await unread(encoding, pack(TEXT) + b"trailing") == "body-damaged"


@each
@pytest.mark.parametrize("other", [*PACKED, "nothing"])
async def test_a_wrong_label_is_damage(how, other):
    encoding, _ = PACKED[how]
    if PACKED.get(other, ("",))[0].strip().lower().removeprefix("x-") == encoding.strip().lower().removeprefix("x-"):
        return  # not wrong
    body = PACKED[other][1](TEXT) if other in PACKED else b'{"model": "m", "messages": []}'
    assert await unread(encoding, body) == "body-damaged"


@pytest.mark.parametrize("encoding", ["gzip, br", "gzip,gzip", "compress", "zlib", "*", "gzip;q=1", "é", "x" * 5000])
async def test_an_encoding_we_do_not_know_is_said_to_be(encoding):
    assert await unread(encoding, gzip.compress(TEXT)) == "body-encoding-unknown"


@cache
def bomb(how: str) -> bytes:
    """256 MiB of nothing."""
    return PACKED[how][1](bytes(256 * MIB)) if how != "br" else brotli.compress(bytes(256 * MIB), quality=1)


@each
async def test_a_bomb_costs_the_limit_and_no_more(how):
    encoding, _ = PACKED[how]
    body = bomb(how)
    tracemalloc.start()
    began = time.process_time()
    assert await unread(encoding, body) == "body-unpacks-too-large"
    took, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 0.5
    assert peak < 20 * MIB


@each
async def test_time_is_a_limit_too(how):
    encoding, body = PACKED[how][0], bomb(how)
    began = time.monotonic()
    assert await unread(encoding, body, most=1024 * MIB, seconds=0.02) == "body-unpacks-too-slowly"
    assert time.monotonic() - began < 0.5


@each
async def test_a_small_body_is_read_however_late_it_is(how):
    encoding, pack = PACKED[how]
    assert await plain(encoding, pack(b"small"), seconds=-1.0) == b"small"


async def test_a_bomb_of_nothing_but_streams_is_stopped_by_time():
    assert await unread("gzip", gzip.compress(b"") * 400_000, seconds=0.02) == "body-unpacks-too-slowly"


async def test_a_zstd_frame_that_wants_more_memory_than_the_web_allows_is_refused():
    level = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.enable_long_distance_matching: 1}
    packer = zstd.ZstdCompressor(options=level)
    frame = packer.compress(os.urandom(MIB)) + packer.flush()
    assert await unread("zstd", frame) == "body-damaged"


@each
async def test_others_get_their_turn_while_a_large_body_is_unpacked(how):
    encoding, pack = PACKED[how]
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await plain(encoding, pack(bytes(8 * MIB)))
    task.cancel()
    assert turns >= 8 * MIB // (2 * OUT_BYTES) - 2  # brotli's pieces are up to twice as large


@each
def test_no_piece_is_much_larger_than_it_should_be(how):
    encoding, pack = PACKED[how]
    sizes = [len(piece) for piece in unpack.pieces(encoding.strip().lower(), pack(bytes(16 * MIB)))]
    assert max(sizes) <= 2 * OUT_BYTES


@given(st.binary(max_size=400), st.sampled_from(sorted(unpack._STREAMS)))
def test_no_bytes_raise_anything_else(body, encoding):
    with suppress(unpack.Unread):
        b"".join(unpack.pieces(encoding, body))


@given(data=st.binary(max_size=5000), how=st.sampled_from(sorted(PACKED)), at=st.floats(0, 1), bit=st.integers(0, 7))
def test_a_turned_bit_raises_nothing_else(data, how, at, bit):
    encoding, pack = PACKED[how]
    body = bytearray(pack(data))
    body[min(int(at * len(body)), len(body) - 1)] ^= 1 << bit
    with suppress(unpack.Unread):
        b"".join(unpack.pieces(encoding.strip().lower(), bytes(body)))
