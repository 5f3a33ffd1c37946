"""What a node proves itself with, and what it accepts: cookies and certificates. They may change while it runs.

A connection uses them while it is made, and never again. So new ones count for new connections only, and connections that stand stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from locks.otp.admission.cookies import Cookies
from locks.otp.admission.secret import Cookie
from locks.otp.options import TLS
from locks.runtime.first_use import Unloaded

if TYPE_CHECKING:
    import ssl
else:
    ssl = Unloaded("ssl")

__all__ = ["Keys"]


class Keys(NamedTuple):
    """The cookies and certificates of a node, as they were when they were read.

    Attributes:
        cookies: The cookies.
        tls: The files with certificates; `None` without TLS.
        contexts: What they say, for connecting and for accepting.
        expires: When the node's certificate expires, in seconds since 1970; `None` if that is unknown.
        read: The content of these files.
    """

    cookies: Cookies
    tls: TLS | None
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None
    expires: float | None
    read: tuple[bytes, ...]

    @classmethod
    def of(cls, cookies: Cookies, tls: TLS | None) -> Keys:
        """Read the files with certificates.

        Raises:
            InvalidOption: A file can't be read, or is not what it should be.
        """
        if tls is None:
            return cls(cookies, None, None, None, ())
        tls = tls.absolute()  # the program may go to another folder
        contexts = tls.contexts()
        return cls(cookies, tls, contexts, tls.expires(), tls.contents())

    def again(self, cookie: Cookie | None = None, tls: TLS | None = None) -> Keys:
        """Read all files again.

        Args:
            cookie: Where the cookies are now, if that has changed.
            tls: Where the certificates are now, likewise.

        Raises:
            InvalidOption: A file can't be read, or is not what it should be.
        """
        cookies = self.cookies if cookie is None else self.cookies._replace(given=cookie)
        return Keys.of(cookies.again(), tls or self.tls)

    def are_same(self, other: Keys) -> bool:
        """Whether both say the same."""
        return self.read == other.read and self.cookies.are_same(other.cookies)

    def __str__(self) -> str:
        """For a log: no secret."""
        count = len(self.cookies.each)
        said = "1 cookie" if count == 1 else f"{count} cookies, the first of which it uses itself"
        return said if self.tls is None else f"{said}, and the certificate {self.tls.certificate}"
