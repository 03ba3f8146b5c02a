"""Numbers and names as plans write them: the bound is in the type, the unit in the name. Pure."""

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=100_000_000)]
Tokens = Annotated[int, Meta(ge=1, le=10_000_000)]
Seconds = Annotated[float, Meta(gt=0, le=1_000_000)]
NonNegativeSeconds = Annotated[float, Meta(ge=0, le=1_000_000)]
PerSecond = Annotated[float, Meta(ge=1e-6, le=1_000_000)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Factor = Annotated[float, Meta(gt=0, le=1_000_000)]
Dollars = Annotated[float, Meta(gt=0, le=1_000_000_000)]
Streams = Annotated[int, Meta(ge=1, le=100_000)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]  # $ would let a newline follow
FilePath = Annotated[str, Meta(min_length=1, max_length=4096)]
