"""For which host a certificate is, and which name a client takes for its own."""

from __future__ import annotations

import pytest

from locks.net.tls import host_of, wrong_host


def certificate(*names: str) -> dict[str, object]:
    """As Python's `ssl` has it."""
    kinds = (("IP Address" if name[0] in "0123456789" else "DNS", name) for name in names)
    return {"subjectAltName": tuple(kinds)}


@pytest.mark.parametrize(
    ("names", "machine", "host"),
    [
        (["web1", "web2"], "web2", "web2"),
        (["10.0.0.1", "db.example"], "web1", "10.0.0.1"),
        (["*.locks.shop"], "locks-0", "locks-0.locks.shop"),
        (["*.locks.shop"], "locks-0.locks.shop", "locks-0.locks.shop"),
        (["*.locks.shop"], "web1.example", "web1.locks.shop"),
        (["0:0:0:0:0:0:0:1\n"], "web1", "::1"),
        ([], "web1", "web1"),
    ],
)
def test_a_client_is_named_for_its_certificate(names: list[str], machine: str, host: str) -> None:
    """The machine's own name counts if the certificate is for it, else the first one of the certificate; the check accepts either."""
    assert host_of(certificate(*names), machine) == host
    if names:
        assert wrong_host(certificate(*names), host) is None


def test_what_is_wrong_says_both_names() -> None:
    """The reason has the host that was wanted, those that the certificate has, and the command that makes the missing one."""
    wrong = wrong_host(certificate("10.0.0.1", "db.example"), "web1")
    assert wrong is not None
    assert wrong.startswith(
        "the node on web1 has a certificate for 10.0.0.1, db.example; it needs one for web1, as `locks certificates web1` makes it"
    )
    assert "has a certificate for no host;" in str(wrong_host(None, "web1"))
    assert wrong_host(certificate("*.shop"), "web.shop") is not None, "a * needs two more parts"
