"""Units the settings are given in."""

from typing import Annotated

from msgspec import Meta

Port = Annotated[int, Meta(ge=1, le=65535)]
Milliseconds = Annotated[float, Meta(gt=0.0, le=60_000.0)]
Seconds = Annotated[float, Meta(gt=0.0, le=86_400.0)]
MIB = 1024 * 1024
