"""Names of versioned tables, as users type them: `delta:loans@12`, `iceberg:lending/bank.loans@4815`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from evenhand.inputs.tables.addresses import shown

__all__ = ["LakeName"]

_NAME = re.compile(r"(delta|iceberg):(.+?)(?:@(\d+))?", re.DOTALL)


@dataclass(frozen=True)
class LakeName:
    """Which table, and which version of it.

    Attributes
    ----------
    kind
        "delta" or "iceberg".
    place
        Folder, address or name in a catalog; may contain a password, so do not show it.
    version
        Number of the version, or of the snapshot; None for the latest.
    """

    kind: str
    place: str = field(repr=False)
    version: int | None = None

    @classmethod
    def of(cls, text: str) -> LakeName | None:
        """Parse the name of a table; None for a path or an address.

        Examples
        --------
        >>> name = LakeName.of("delta:s3://bank/loans@12")
        >>> name.kind, name.place, name.version, str(name)
        ('delta', 's3://bank/loans', 12, 'delta:s3://bank/loans@12')
        >>> print(LakeName.of("delta.parquet"))
        None
        """
        found = _NAME.fullmatch(text)
        return None if found is None else cls(found[1], found[2], None if found[3] is None else int(found[3]))

    def __str__(self) -> str:
        return self.latest + ("" if self.version is None else f"@{self.version}")

    @property
    def latest(self) -> str:
        """Name of the table shown to users, without its version."""
        return f"{self.kind}:{shown(self.place)}"
