"""Damage to a file: a few bytes or words, cuts, insertions, blocks in the wrong place."""

from __future__ import annotations

import random
from collections.abc import Callable

_NUMBERS = [
    0, 1, 2, 7, -1, -2, 63, 64, 89, 90, 91, 120, 255, 256, 499, 500, 501, 4095, 4096, 4097,
    2**15, 2**16, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**33, 2**40, 2**52, 2**60,
    6 * 10**18, -6 * 10**18, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1, 0x7FF0000000000000,
]  # fmt: skip
# Tokens that the formats' readers look for.
_TOKENS = [bytes([token]) for token in b"\n\r\", \t#\0-+e.'\\()]{}:[0"]
_TOKENS += [b"\r\n", b'""', b"nan", b"inf", b"1e999", b"0x10", b"9" * 25, b"\xff\xfe", b"-1"]
_TOKENS += [b"\xef\xbb\xbf", b"[" * 9, b"null", b"true", b"\xc3\xa9", b"\xd9\xa3", b"\x1f\x8b"]
_TOKENS += [b"\x93NUMPY", b"PK\x03\x04", b"ARROW1", b"PAR1"]


def _byte(data: bytearray, at: int, rng: random.Random) -> None:
    data[at] = rng.randrange(256)


def _bit(data: bytearray, at: int, rng: random.Random) -> None:
    data[at] ^= 1 << rng.randrange(8)


def _digit(data: bytearray, at: int, rng: random.Random) -> None:
    """Another digit where there is one near: numbers in text, shapes in headers."""
    for near in range(at, min(at + 40, len(data))):
        if data[near : near + 1].isdigit():
            data[near] = rng.choice(b"0123456789-,.")
            return
    _byte(data, at, rng)


def number(rng: random.Random, old: int = 0) -> int:
    """A number near the one that is there, or one at which something may overflow or begin."""
    kind = rng.random()
    if kind < 0.3:
        return old + rng.choice([-1, 1, 2, -2, 8, 4096, -4096])
    return rng.choice(_NUMBERS) if kind < 0.85 else rng.getrandbits(64)


def word(data: bytearray, at: int, rng: random.Random) -> str:
    """Another number in the word that has the byte at ``at``; says which."""
    width = rng.choice([1, 2, 4, 4, 8, 8, 8])
    at -= at % width
    old = int.from_bytes(data[at : at + width], "little", signed=True)
    new = number(rng, old) % (1 << 8 * width)
    data[at : at + width] = new.to_bytes(width, "little")
    return f"{width} bytes at {at}: {old} is {new:#x}"


def _token(data: bytearray, at: int, rng: random.Random) -> None:
    token = rng.choice(_TOKENS)
    data[at : at + rng.choice([0, len(token)])] = token


def _delete(data: bytearray, at: int, rng: random.Random) -> None:
    del data[at : at + rng.choice([1, 2, 8, 30, 200])]


def _cut(data: bytearray, at: int, rng: random.Random) -> None:
    del data[at:]


def _fill(data: bytearray, at: int, rng: random.Random) -> None:
    size = min(rng.choice([4, 8, 64, 500]), len(data) - at)
    data[at : at + size] = bytes([rng.choice([0, 0, 255, rng.randrange(256)])]) * size


def _copy(data: bytearray, at: int, rng: random.Random) -> None:
    size, other = rng.choice([1, 8, 50, 300]), rng.randrange(len(data))
    data[at : at + rng.choice([0, size])] = data[other : other + size]


def _swap(data: bytearray, at: int, rng: random.Random) -> None:
    size = rng.choice([1, 4, 8, 64])
    other = rng.randrange(len(data))
    first, second = min(at, other), max(at, other)
    size = min(size, second - first, len(data) - second)
    here, there = data[first : first + size], data[second : second + size]
    data[first : first + size], data[second : second + size] = there, here


_KINDS: list[Callable[[bytearray, int, random.Random], object]] = [
    *[_byte, _bit, _bit, _digit, _digit, word, word, _token, _token],
    *[_delete, _cut, _fill, _copy, _swap],
]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """``data`` with one to four things wrong, most often one."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 1, 2, 3, 4])):
        if not out:
            break
        # Headers and footers are a small part of a file and the larger part of a format.
        at = rng.choice(
            [
                rng.randrange(len(out)),
                rng.randrange(min(len(out), 200)),
                len(out) - 1 - rng.randrange(min(len(out), 400)),
            ]
        )
        rng.choice(_KINDS)(out, at, rng)
    return bytes(out)
