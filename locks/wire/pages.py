"""Views by pages of bounded size: they grow with the number of rows.

A page has at most so many items, and so many bytes but for its last item; an item, one request, is
bounded by what a lock id may have. So a page can always be encoded, and never comes near what
a peer refuses, whatever is locked.

A view is read by a watcher's node in pages, too: `ViewPage`. A page has requests as they are when it is
sent, and the numbers of those that are gone. After a page that is `complete` the reader knows exactly
what the lock table has at the page's version. The reader says which pages it has taken in (`TAKEN`).
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from locks.model import Contender
from locks.otp.bytes import etf
from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.fields import BadMessage, brief
from locks.otp.bytes.terms import Term
from locks.ranges import Number, Version
from locks.wire.forms import FORMS, OURS

__all__ = [
    "LARGE",
    "LARGEST_PAGE",
    "MOST_ITEMS",
    "TAKEN",
    "PageContent",
    "ViewPage",
    "contender_term",
    "pack_content",
    "pack_page",
    "pack_taken",
    "unpack_page",
    "unpack_taken",
]

MOST_ITEMS = 100  # in one page
LARGEST_PAGE = 16 * 1024  # bytes at which a page is full
PAGE = constant("page")
TAKEN = constant("taken")
LARGE = (OURS, constant("large"))  # the answer to who asks for a view that does not fit into a page


class PageContent(NamedTuple):
    """The part of a page that is the same for all who read it.

    Attributes:
        version: The version of the lock table when it was sent.
        anew: Whether the reader begins with it, and forgets what it has read before.
        complete: Whether the reader knows the whole view with it.
        gone: The numbers of requests that are no longer there.
        requests: How others are now.
    """

    version: Version
    anew: bool
    complete: bool
    gone: Annotated[tuple[Number, ...], Meta(max_length=MOST_ITEMS)]
    requests: Annotated[tuple[Contender, ...], Meta(max_length=MOST_ITEMS)]


class ViewPage(NamedTuple):
    """One page of a view that is read.

    Attributes:
        reading: What the lock server's node calls this reading.
        number: Number of the page in it, from 1.
        content: What it says.
    """

    reading: Number
    number: Number
    content: PageContent


_CONTENDER = FORMS.of(Contender)
_PAGE = FORMS.message(ViewPage, OURS, PAGE)


def contender_term(contender: Contender) -> Term:
    """The term of a request in a view; raises `EncodeError` if there is none."""
    return Term(etf.encode(_CONTENDER.pack(contender))[1:])


def pack_content(
    version: int, anew: bool, complete: bool, gone: list[int], requests: list[Term]
) -> Term:
    """The term of what a page says, of requests that are terms already."""
    return Term(etf.encode((version, anew, complete, gone, requests))[1:])


def pack_page(reading: int, number: int, content: Term) -> Any:
    """The term of a page."""
    return (OURS, PAGE, reading, number, content)


def unpack_page(term: Any) -> ViewPage:
    """The page that a term stands for.

    Raises:
        BadMessage: It stands for none.
    """
    page: ViewPage = _PAGE.unpack(term)
    if term[:2] != (OURS, PAGE):
        raise BadMessage(f"{brief(term)} should be a page of a view")
    return page


def pack_taken(page: ViewPage) -> Any:
    """The term by which a reader says that it has taken in a page, and all before it."""
    return (OURS, TAKEN, page.reading, page.number)


def unpack_taken(term: tuple[Any, ...]) -> tuple[int, int]:
    """The reading and the number of a page that was taken in.

    Raises:
        BadMessage: The term does not say so.
    """
    if len(term) != 4 or type(term[2]) is not int or type(term[3]) is not int:
        raise BadMessage(f"{brief(term)} should say which page was taken in")
    return term[2], term[3]
