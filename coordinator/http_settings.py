"""Where and for whom HTTP is served: what `coordinator.http` is told."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from layerline.addresses import join_address
from layerline.errors import UsageError

MAX_KEY_FILE_BYTES = 64 << 10
MIN_KEY_LENGTH = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpSettings:
    """`keys` are those of which a request must have one; none: nobody needs one, which `open` must say beyond loopback.

    `names` are further host names under which the server is reached, `origins` those of pages elsewhere that may call
    it. `chosen` is False for an address that nobody asked for: it is done without where it is taken.
    """

    host: str = "127.0.0.1"
    port: int = 0  # any that is free
    keys: tuple[str, ...] = ()
    open: bool = False
    names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    cert: str = ""
    cert_key: str = ""
    chosen: bool = True

    def __post_init__(self) -> None:
        if not (self.is_local or self.keys or self.open):
            raise UsageError(
                f"--http {self.address} would answer everybody on the network.",
                remedy="Give --api-key-file FILE, or --http-open if that is what you want.",
            )
        if bool(self.cert) != bool(self.cert_key):
            raise UsageError("--http-cert and --http-key go together.")
        if self.cert:
            self.tls()

    @property
    def address(self) -> str:
        """host:port."""
        return join_address(self.host, self.port)

    @property
    def scheme(self) -> str:
        """Of the server's addresses."""
        return "https" if self.cert else "http"

    @property
    def is_local(self) -> bool:
        """Whether programs of this machine alone can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def tls(self) -> ssl.SSLContext | None:
        """What TLS is spoken with, None without a certificate; UsageError for files that do not make one."""
        if not self.cert:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.cert, self.cert_key)
        except (OSError, ssl.SSLError) as error:
            why = error.strerror or str(error)
            raise UsageError(f"--http-cert {self.cert} and --http-key {self.cert_key} cannot be used: {why}.") from None
        return context


def read_keys(path: Path) -> tuple[str, ...]:
    """The keys of a file, one on each line; UsageError for a file that has none or cannot be read.

    Empty lines and those that begin with # are left out.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--api-key-file {path} cannot be read ({error.strerror}).") from None
    if len(data) > MAX_KEY_FILE_BYTES:
        raise UsageError(f"--api-key-file {path} has over {MAX_KEY_FILE_BYTES >> 10} KiB.")
    try:
        lines = [line.strip() for line in data.decode("ascii").splitlines()]
    except UnicodeDecodeError:
        raise UsageError(f"--api-key-file {path} has letters that a header cannot have.") from None
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise UsageError(f"--api-key-file {path} has no key in it.", remedy="Write one on each line.")
    if short := next((key for key in keys if len(key) < MIN_KEY_LENGTH), ""):
        raise UsageError(
            f"--api-key-file {path} has a key of {len(short)} letters, which is too short.",
            remedy=f"Take at least {MIN_KEY_LENGTH}, as `openssl rand -hex 24` makes them.",
        )
    return keys
