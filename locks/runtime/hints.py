"""`Unpack` for Python 3.10, so that `typing.get_type_hints` can read the annotations of options."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack  # of every type checker; it needs not be installed
else:

    class Unpack:
        """A replacement at run time, where types are not checked."""

        def __class_getitem__(cls, kind: Any) -> Any:
            return kind


__all__ = ["Unpack"]
