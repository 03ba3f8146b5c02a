"""What decoding bytes of others can raise: said once, because each of the three is easily forgotten. Pure."""

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Not JSON or not of the shape expected, text that is no UTF-8, and arrays nested by the thousand."""
