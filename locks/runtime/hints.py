"""`Unpack`, which Python has from 3.11 on: with it, `typing.get_type_hints` reads the annotations of options anywhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack  # of every type checker; it needs not be installed
else:

    class Unpack:
        """Stands for it where nobody checks types."""

        def __class_getitem__(cls, kind: Any) -> Any:
            return kind


__all__ = ["Unpack"]
