"""Padding that hides how long an event's words are, as OpenAI adds it; drawn from key and place. Pure."""

from random import Random
from string import ascii_letters, digits

LONGEST = 16
_DRAWN = Random("obfuscation").choices(ascii_letters + digits, k=4096 + LONGEST)
_LETTERS = "".join(_DRAWN).encode("ascii")


def padding(key: int, place: int) -> bytes:
    """1 to 16 letters and digits, the same for the same key and place."""
    mixed = (key * 0x9E3779B1 + place * 0x85EBCA77) & 0xFFFFFFFF
    mixed ^= mixed >> 15
    start = mixed & 4095
    return _LETTERS[start : start + 1 + (mixed >> 12) % LONGEST]
