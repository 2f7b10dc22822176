"""Who may ask over HTTP, and how much: hosts, origins, keys, and bodies that are too large or end early."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from pathlib import Path

import pytest
from starlette.routing import Route

from coordinator.coordinator import Coordinator
from coordinator.http import bodies, server
from coordinator.http.activity import Activity
from coordinator.http.app import routes_of
from coordinator.http.bodies import MAX_BODY_BYTES
from coordinator.http.live import Live
from coordinator.http.server import http_served
from coordinator.http_settings import HttpSettings, read_keys
from coordinator.settings import CoordinatorSettings
from layerline.addresses import split_address
from layerline.errors import PortInUseError, UsageError
from layerline.rpc.transport import Transport
from tests.fakes.http_program import http_of

KEY = "a-key-of-the-house"
CHATS = "/v1/chat/completions"

pytestmark = pytest.mark.usefixtures("nothing_left_over")


def coordinator() -> Coordinator:
    """One that has no nodes."""
    return Coordinator(CoordinatorSettings(name="test", mdns=False), Transport(), address="here:1")


async def test_every_route_but_health_wants_the_key() -> None:
    live = Live(coordinator(), Activity())
    routes = [route for route in routes_of(coordinator(), Activity(), live) if isinstance(route, Route)]
    assert len(routes) >= 20
    async with coordinator() as serving, http_of(serving, keys=(KEY, "another-key")) as program:
        for route in routes:
            path = route.path
            for parameter in ("{model:path}", "{id}", "{number:int}", "{name}"):
                path = path.replace(parameter, "1")
            for method in (route.methods or set()) - {"HEAD"}:
                without = await program.status(method, path, {})
                wrong = await program.status(method, path, {"authorization": f"Bearer {KEY}x"})
                if path == "/health":
                    assert without == 503
                    continue
                assert (without, wrong) == (401, 401), path
                basic = base64.b64encode(f"me:{KEY}".encode()).decode()
                for right in (
                    {"authorization": f"Bearer {KEY}"},
                    {"x-api-key": KEY},
                    {"authorization": f"Basic {basic}"},
                ):
                    assert await program.status(method, path, right) not in (401, 403), path


async def test_nobody_is_reached_under_a_strange_name() -> None:
    async with coordinator() as serving, http_of(serving, names=("llm.example",)) as program:
        for host in ("[abc", "evil.example", "evil.example:7380", "127.0.0.1.evil.example", "localhost.evil", "\u00e9"):
            assert (await program.send("GET", "/version", b"", {"host": host})).status == 421, host
        for host in (
            "localhost",
            "LOCALHOST:7380",
            "127.0.0.1",
            "[::1]:80",
            "10.1.2.3:1",
            "llm.example",
            "a.localhost",
        ):
            assert (await program.send("GET", "/version", b"", {"host": host})).status == 200, host


async def test_pages_of_elsewhere_may_not_ask_unless_they_are_named() -> None:
    ours = "https://ours.example"
    async with coordinator() as serving, http_of(serving, origins=(ours,)) as program:
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
            assert (await program.get("/version", origin=origin)).status == 403
        assert (await program.get("/version", origin=program.url)).status == 200
        allowed = await program.get("/version", origin=ours)
        assert allowed.headers["access-control-allow-origin"] == ours
        preflight = {"origin": ours, "access-control-request-method": "POST"}
        assert (await program.send("OPTIONS", CHATS, b"", preflight)).status == 200
    async with coordinator() as serving, http_of(serving) as program:
        assert "access-control-allow-origin" not in (await program.get("/version", origin=program.url)).headers


async def test_bodies_have_bounds() -> None:
    async with coordinator() as serving, http_of(serving) as program:
        told = await program.begin("POST", CHATS, b"{}", {}, length=MAX_BODY_BYTES + 1)
        assert b" 413 " in await told[0].readline()
        told[1].close()
        reader, writer = await program.begin("POST", CHATS, b"", {"transfer-encoding": "chunked", "content-length": ""})
        piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        with contextlib.suppress(ConnectionError):  # it need not read what it refuses
            for _ in range(20):
                writer.write(piece)
                await writer.drain()
            assert b" 413 " in await reader.readline()
        writer.close()
        reader, writer = await program.begin("POST", CHATS, b'{"messages"', {}, length=100)
        writer.write_eof()
        await reader.read()
        writer.close()
        assert (await program.get("/version")).status == 200


async def test_a_port_that_is_taken() -> None:
    async with coordinator() as serving, http_of(serving) as program:
        port = int(program.address.rpartition(":")[2])
        with pytest.raises(PortInUseError, match="--http"):
            async with http_served(HttpSettings(port=port), lambda *_: None):  # type: ignore[arg-type]
                pass


def test_beyond_this_machine_there_is_a_key_or_a_word_for_it() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5", "box.lan"):
        with pytest.raises(UsageError, match="everybody on the network"):
            HttpSettings(host=host)
        HttpSettings(host=host, keys=(KEY,))
        HttpSettings(host=host, open=True)
    for host in ("127.0.0.1", "::1", "localhost", "127.1.2.3"):
        HttpSettings(host=host)
    with pytest.raises(UsageError, match="go together"):
        HttpSettings(cert="x")
    with pytest.raises(UsageError, match="cannot be used"):
        HttpSettings(cert="/nowhere.pem", cert_key="/nowhere.pem")


@pytest.mark.parametrize(
    ("text", "word"),
    [("", "no key"), ("# only words\n\n", "no key"), ("short\n", "too short"), ("schlüssel-123\n", "letters")],
)
def test_a_key_file_without_keys(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(UsageError, match=word):
        read_keys(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_keys(tmp_path / "none")
    path.write_text(f"# ours\n{KEY}\n\n another-key \n")
    assert read_keys(path) == (KEY, "another-key")


async def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_DEADLINE_S", 0.1)
    async with coordinator() as serving, http_of(serving) as program:
        for said in (b"", b"GET /version HTTP/1.1\r\nhost: "):
            reader, writer = await asyncio.open_connection(*split_address(program.address))
            writer.write(said)
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_DEADLINE_S", 0.1)
    async with coordinator() as serving, http_of(serving) as program:
        reader, writer = await program.begin("POST", CHATS, b'{"messages"', {}, length=100)
        async with asyncio.timeout(5):
            assert b" 408 " in await reader.readline()
        writer.close()


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET /\r\n\r\n", b"\r" * 100]
)
async def test_what_is_no_http_is_refused(head: bytes) -> None:
    async with coordinator() as serving, http_of(serving) as program:
        reader, writer = await asyncio.open_connection(*split_address(program.address))
        writer.write(head)
        writer.write_eof()
        async with asyncio.timeout(5):
            assert (await reader.read())[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 421")
        writer.close()
        assert (await program.get("/version")).status == 200


async def test_a_head_without_end_is_refused() -> None:
    async with coordinator() as serving, http_of(serving) as program:
        reader, writer = await asyncio.open_connection(*split_address(program.address))
        writer.write(b"GET /version HTTP/1.1\r\nhost: localhost\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                writer.write(b"x-more: " + b"a" * 1000 + b"\r\n")
                await writer.drain()
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                assert b" 400 " in await reader.readline()
        writer.close()
        assert (await program.get("/version")).status == 200


async def test_one_connection_too_many_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    async with coordinator() as serving, http_of(serving) as program:
        kept = [await asyncio.open_connection(*split_address(program.address)) for _ in range(3)]
        reader, writer = await asyncio.open_connection(*split_address(program.address))
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        for _, each in [*kept, (reader, writer)]:
            each.close()


async def test_tls_is_spoken_where_there_is_a_certificate(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "1"]
    made = await asyncio.create_subprocess_exec(
        *words, "-keyout", str(key), "-out", str(cert), stderr=asyncio.subprocess.DEVNULL
    )
    assert await made.wait() == 0
    context = ssl.create_default_context(cafile=str(cert))
    async with coordinator() as serving, http_of(serving, cert=str(cert), cert_key=str(key)) as program:
        assert program.url.startswith("https://")
        host, port = split_address(program.address)
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="localhost")
        writer.write(b"GET /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        async with asyncio.timeout(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        plain_reader, plain_writer = await asyncio.open_connection(host, port)
        plain_writer.write(b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n")
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                assert b"HTTP" not in await plain_reader.read()
        plain_writer.close()


async def test_a_page_that_may_ask_can_read_why_it_was_refused() -> None:
    origin = "https://chat.example"
    async with coordinator() as serving, http_of(serving, keys=(KEY,), origins=(origin,)) as program:
        got = await program.send("GET", "/version", b"", {"origin": origin})
        assert (got.status, got.headers["access-control-allow-origin"]) == (401, origin)


async def test_the_head_of_a_stream_ends() -> None:
    async with coordinator() as serving, http_of(serving) as program:
        assert (await program.send("HEAD", "/page/api/events", b"", {})).status == 200
