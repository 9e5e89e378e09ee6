"""What the numbers and names of the metrics file may be."""

from typing import Annotated

from pydantic import Field

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\-]{1,128}$")]
