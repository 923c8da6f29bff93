"""Rows of an array in a `.npy` file, read in slices without mapping the file into memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from evenhand.exceptions import StreamError

__all__ = ["RowFile"]


@dataclass(frozen=True)
class RowFile:
    """A `.npy` file whose rows are asked for a few at a time.

    Attributes
    ----------
    kind
        Type of a row.
    n_rows
        Number of rows.
    offset
        Where the first row begins, in bytes.
    """

    path: Path
    kind: np.dtype[Any]
    n_rows: int
    offset: int

    @classmethod
    def open(cls, path: Path) -> RowFile:
        """Read what the file says of itself.

        Raises
        ------
        StreamError
            If the file is damaged.

        Examples
        --------
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows.npy"
        >>> np.save(path, np.arange(6).reshape(3, 2))
        >>> RowFile.open(path).rows(1, 3)
        array([[2, 3],
               [4, 5]])
        """
        try:
            with path.open("rb") as file:
                version = npy.read_magic(file)
                read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, is_fortran, dtype = read(file)
                offset = file.tell()
            kind = np.dtype((dtype, shape[1:]))
            if dtype.hasobject or is_fortran or path.stat().st_size != offset + shape[0] * kind.itemsize:
                raise ValueError("it is not as long as its header says")
        except (OSError, ValueError, IndexError) as error:
            raise StreamError(
                f"{str(path)!r} cannot be read ({error}); remove the .npz file beside it to have its batch audited "
                "again."
            ) from error
        return cls(path, kind, int(shape[0]), offset)

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Rows from `start` to before `stop`."""
        found: NDArray[Any] = np.fromfile(
            self.path, self.kind, count=stop - start, offset=self.offset + start * self.kind.itemsize
        )
        return found
