"""`locks certificates`: make an authority, and certificates for servers and programs.

The package `cryptography`, of the extra `pykka-locks[certificates]`, makes them.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from locks.errors import InvalidOption

if TYPE_CHECKING:
    from cryptography import x509

__all__ = ["add_command"]

MISSING = 3
AUTHORITY_DAYS = 3650
EXAMPLES = """\
  locks certificates 10.0.0.1 10.0.0.2 10.0.0.3 --client programs
  locks certificates 10.0.0.1,db1.example        # one machine with two names
  locks certificates '*.locks.default.svc.cluster.local' --client programs
  locks certificates --renew                     # all of them, by the same authority
"""
SAYS = """Make certificates for lock servers and programs. Each gets a folder of its own with tls.crt, tls.key and ca.crt: all that its
machine needs. The first call also makes an authority, ca.crt and ca.key. Whoever has ca.key can make certificates: do not copy it
to the servers. Files that exist are kept, unless --renew is given.

Exit status: 0; 2 wrong arguments, or a file exists or can't be written; 3 the package cryptography is not installed."""


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "certificates", help=about, description=SAYS, epilog=f"Examples:\n{EXAMPLES}"
    )
    parser.add_argument(
        "server",
        nargs="*",
        metavar="HOST[,HOST...]",
        help="a server's host, as in its name: name@HOST. More names of the same machine follow after commas",
    )
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="NAME",
        help="a name for programs that are only clients; they may share a certificate. May be repeated",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("certificates"),
        help="where the files are (default: %(default)s)",
    )
    parser.add_argument(
        "--days",
        type=int,
        default=365,
        help="how long the certificates are valid (default: %(default)s; the authority: 10 years)",
    )
    parser.add_argument(
        "--renew",
        action="store_true",
        help="replace existing certificates and their keys; without names, all in the folder",
    )
    parser.set_defaults(run=_run)


class _Wanted(NamedTuple):
    """A certificate to make.

    Attributes:
        folder: Where.
        hosts: The names in it; DNS names or addresses.
        is_client: Whether it is only for programs that connect.
    """

    folder: Path
    hosts: Sequence[str]
    is_client: bool


def _run(options: argparse.Namespace) -> int:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        print(
            "locks certificates: the package cryptography is not installed: pip install 'pykka-locks[certificates]'",
            file=sys.stderr,
        )
        return MISSING
    try:
        for line in _make(options):
            print(line)
    except (InvalidOption, OSError) as error:
        print(f"locks certificates: {error}", file=sys.stderr)
        return 2
    return 0


def _make(options: argparse.Namespace) -> list[str]:
    """Make the authority, if there is none, and what is wanted; return what to print.

    Raises:
        InvalidOption: Something is wrong; then nothing was made.
        OSError: A file can't be written.
    """
    folder: Path = options.folder
    wanted = [_wanted(folder, each.split(","), False) for each in options.server]
    wanted += [_wanted(folder, [each], True) for each in options.client]
    if options.renew and not wanted:
        wanted = [_made(path.parent) for path in sorted(folder.glob("*/tls.crt"))]
    if not wanted:
        raise InvalidOption(
            f"{folder} has no certificates to renew"
            if options.renew
            else "no host is named: list the hosts of the servers, as in their names, such as 10.0.0.1"
        )
    if not 0 < options.days <= AUTHORITY_DAYS:
        raise InvalidOption(f"--days {options.days} is not from 1 to {AUTHORITY_DAYS}")
    for each in wanted:
        if [other.folder for other in wanted].count(each.folder) > 1:
            raise InvalidOption(f"{each.hosts[0]} is named twice")
        if not options.renew and each.folder.exists():
            raise InvalidOption(
                f"{each.folder} exists; pass --renew to replace its certificate and key"
            )
    said = []
    authority = _Authority(folder)
    if authority.is_new:
        said.append(
            f"{folder / 'ca.key'}: a new authority's key. Keep it secret, away from the servers"
        )
    for each in wanted:
        until = authority.certify(each, options.days)
        kind = "programs" if each.is_client else "a server"
        said.append(f"{each.folder}: for {kind}, {', '.join(each.hosts)}, until {until:%Y-%m-%d}")
    return said


def _wanted(folder: Path, hosts: Sequence[str], is_client: bool) -> _Wanted:
    for host in hosts:
        parts = host.removeprefix("*.").split(".")
        is_name = all(each and each.replace("-", "").replace("_", "").isalnum() for each in parts)
        if not ((host.isascii() and is_name) or _address(host)) or len(host) > 253:
            raise InvalidOption(f"{host!r} is not the name or the address of a host")
        if host.startswith("*.") and (is_client or len(parts) < 2):
            raise InvalidOption(
                f"{host!r}: * stands for the first part of a server's name of three or more"
            )
    return _Wanted(folder / hosts[0].removeprefix("*."), hosts, is_client)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _made(folder: Path) -> _Wanted:
    """What a certificate that was made before is for."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    certificate = _read(folder / "tls.crt")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    is_client = ExtendedKeyUsageOID.SERVER_AUTH not in uses
    return _Wanted(folder, [str(name.value) for name in names], is_client)


def _read(path: Path) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise InvalidOption(f"{path} is not a certificate: {error}") from error


class _Authority:
    """What signs certificates; made if its folder has nothing yet.

    Attributes:
        is_new: Whether it was made just now.
    """

    def __init__(self, folder: Path) -> None:
        from cryptography.hazmat.primitives import serialization

        path, key = folder / "ca.crt", folder / "ca.key"
        self.is_new = not (path.exists() or key.exists() or any(folder.glob("*/tls.crt")))
        if self.is_new:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make(folder)
        try:
            self._key: Any = serialization.load_pem_private_key(key.read_bytes(), None)
        except (ValueError, TypeError) as error:
            raise InvalidOption(f"{key} is not the key of an authority: {error}") from error
        self._certificate = _read(path)
        if self._key.public_key() != self._certificate.public_key():
            raise InvalidOption(f"{key} is not the key of {path}")

    def _make(self, folder: Path) -> None:
        from cryptography import x509

        key, name = _new_key(), _name("locks CA")
        extensions = {
            x509.BasicConstraints(ca=True, path_length=0): True,
            _usage(signs_certificates=True): True,
        }
        now = datetime.now(timezone.utc)
        until = now + timedelta(AUTHORITY_DAYS)
        made = _signed(name, name, key.public_key(), key, (now, until), extensions)
        _write(folder, {"ca.key": _pem_of_key(key), "ca.crt": _pem(made)})

    def certify(self, wanted: _Wanted, days: int) -> datetime:
        """Make a key and its certificate; return when it ends."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        names: list[x509.GeneralName] = []
        for host in wanted.hosts:
            address = _address(host)
            names.append(x509.DNSName(host) if address is None else x509.IPAddress(address))
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if not wanted.is_client:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        extensions = {
            x509.BasicConstraints(ca=False, path_length=None): True,
            _usage(signs_certificates=False): True,
            x509.ExtendedKeyUsage(uses): False,
            x509.SubjectAlternativeName(names): False,
        }
        key, signer = _new_key(), self._certificate
        now = datetime.now(timezone.utc)
        until = min(now + timedelta(days), signer.not_valid_after_utc)
        name = _name(wanted.hosts[0][:64])  # no more fit there; what counts are `names`
        made = _signed(name, signer.subject, key.public_key(), self._key, (now, until), extensions)
        wanted.folder.mkdir(mode=0o700, exist_ok=True)
        files = {"tls.key": _pem_of_key(key), "tls.crt": _pem(made), "ca.crt": _pem(signer)}
        _write(wanted.folder, files)
        return until


def _name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    name: x509.Name,
    signer: x509.Name,
    public: Any,
    key: Any,
    valid: tuple[datetime, datetime],
    extensions: Mapping[x509.ExtensionType, bool],
) -> x509.Certificate:
    """A certificate; it begins an hour early, for machines whose clocks are slow."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    made = x509.CertificateBuilder().subject_name(name).issuer_name(signer).public_key(public)
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(valid[0] - timedelta(hours=1)).not_valid_after(valid[1])
    of_signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    own = x509.SubjectKeyIdentifier.from_public_key(public)
    for extension, critical in {**extensions, own: False, of_signer: False}.items():
        made = made.add_extension(extension, critical)
    return made.sign(key, SHA256())


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _pem_of_key(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as forms

    pem: bytes = key.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
    )
    return pem


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files, each whole or not at all; others can't read the keys."""
    for name, content in files.items():
        draft = folder / f"{name}-{secrets.token_hex(4)}"
        mode = 0o600 if name.endswith(".key") else 0o644
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
            os.replace(draft, folder / name)
        finally:
            draft.unlink(missing_ok=True)
