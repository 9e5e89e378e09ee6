"""What the numbers and names of the metrics file may be."""

from typing import Annotated

from pydantic import AfterValidator, Field

LEAST_WEIGHT = 1e-6
"""Smaller ones are lost in rounding: the tiniest times a half is 0."""


def _is_felt(weight: float) -> float:
    if 0 < weight < LEAST_WEIGHT:
        raise ValueError(f"a weight is 0 or at least {LEAST_WEIGHT}, got {weight}")
    return weight


Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False), AfterValidator(_is_felt)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\-]{1,128}$")]
