"""A prompt as a chain of blocks, each named by a hash of itself and all before it: equal names are equal prefixes."""

from collections.abc import Iterable
from hashlib import blake2b

from policy.kvcache import BLOCK_TOKENS, Block

BLOCK_BYTES = 4 * BLOCK_TOKENS
"""Of JSON as it came: four bytes to a token, as everywhere."""
MOST = 128
"""Blocks of one prompt; what comes behind them is not what makes two prompts begin alike."""


def blocks(parts: Iterable[memoryview], *salt: str) -> tuple[Block, ...]:
    """Whole blocks of a prompt's *parts*, in order. Prompts of another *salt* (tenant, model) share none."""
    name = blake2b("\0".join(salt).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    out: list[Block] = []
    for part in parts:
        for at in range(0, len(part) - BLOCK_BYTES + 1, BLOCK_BYTES):
            if len(out) == MOST:
                return tuple(out)
            name = blake2b(part[at : at + BLOCK_BYTES], digest_size=8, key=name).digest()
            out.append(int.from_bytes(name, "big"))
    return tuple(out)
