"""``cyclescope serve``: who may ask, for what, and what else a page can reach."""

from __future__ import annotations

import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from cyclescope._server import Server
from support.processes import python
from support.reports import leaked


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "reports"
    folder.mkdir()
    with Server(folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: Server, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, str, dict[str, str]]:
    """The status, the content and the headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    headers = {} if host is None else {"Host": host}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, content, dict(answer.getheaders())


def below(server: Server, path: str = "") -> str:
    return urllib.parse.urlsplit(server.address).path + path


def names(server: Server) -> list[str]:
    return [each["name"] for each in json.loads(ask(server, below(server, "list"))[1])]


def test_it_listens_on_the_loopback_address_only(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.socket.family is socket.AF_INET


def test_without_the_token_there_is_nothing(server: Server) -> None:
    (server.folder / "page.html").write_text("secret", encoding="utf-8")
    assert len(server.token) >= 32
    assert ask(server, below(server))[0] == 200
    wrong = server.token[:-1] + ("a" if server.token[-1] != "a" else "b")
    for path in (
        "/",
        "/list",
        "/page/page.html",
        f"/{wrong}/",
        f"/{wrong}/list",
        f"//{wrong}/list",
    ):
        status, content, _ = ask(server, path)
        assert (status, content) == (404, "not found\n"), path


def test_another_host_name_is_refused(server: Server) -> None:
    port = server.server_port
    assert ask(server, below(server), host=f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}"):
        assert ask(server, below(server), host=host)[0] == 404, host


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_but_reading(server: Server, method: str) -> None:
    assert ask(server, below(server), method)[0] == 501


def test_only_listed_files_are_served(server: Server, tmp_path: Path) -> None:
    (tmp_path / "outside.html").write_text("outside", encoding="utf-8")
    (server.folder / "page.html").write_text("inside", encoding="utf-8")
    (server.folder / "notes.txt").write_text("notes", encoding="utf-8")
    (server.folder / "link.html").symlink_to(tmp_path / "outside.html")
    (server.folder / "folder.html").mkdir()
    assert names(server) == ["page.html"]
    assert ask(server, below(server, "page/page.html"))[:2] == (200, "inside")
    for name in (
        "link.html",
        "notes.txt",
        "folder.html",
        "../outside.html",
        "..%2Foutside.html",
        "%2e%2e/outside.html",
        str(tmp_path / "outside.html"),
        "",
        ".",
    ):
        status, content, _ = ask(server, below(server, f"page/{name}"))
        assert status == 404, name
        assert "outside" not in content
        assert "notes" not in content


def test_a_report_as_json_is_rendered_unless_its_page_is_there(server: Server) -> None:
    report = leaked("awaitable_leak")
    (server.folder / "leak.json").write_text(report.to_json(), encoding="utf-8")
    (server.folder / "other.json").write_text("{}", encoding="utf-8")
    assert names(server) == ["leak.json"]
    status, content, _ = ask(server, below(server, "page/leak.json"))
    assert status == 200
    assert report.leaks[0].signature in content
    assert ask(server, below(server, "page/other.json"))[0] == 404
    (server.folder / "leak.html").write_text(report.to_html(), encoding="utf-8")
    assert names(server) == ["leak.html"]


def test_the_newest_comes_first(server: Server) -> None:
    for age, name in enumerate(("c.html", "a.html", "b.html")):
        (server.folder / name).touch()
        os.utime(server.folder / name, (1000 - age, 1000 - age))
    assert names(server) == ["c.html", "a.html", "b.html"]
    os.utime(server.folder / "b.html", (2000, 2000))
    assert names(server)[0] == "b.html"


def test_every_answer_is_strict(server: Server) -> None:
    (server.folder / "page.html").write_text("page", encoding="utf-8")
    for path in ("", "list", "page/page.html", "page/none.html", "none"):
        headers = ask(server, below(server, path))[2]
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
        assert "Python" not in headers["Server"]
    policy = ask(server, below(server, "page/page.html"))[2]["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy


def test_a_head_request_has_no_content(server: Server) -> None:
    status, content, headers = ask(server, below(server), "HEAD")
    assert (status, content) == (200, "")
    assert int(headers["Content-Length"]) > 1000


def test_the_command_says_where(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cyclescope", "serve", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = urllib.parse.urlsplit(line.split()[-1])
        connection = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=60)
        connection.request("GET", address.path)
        assert connection.getresponse().status == 200
        connection.close()
        process.terminate()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = python("-m", "cyclescope", "serve", str(tmp_path / "none"))
    assert done.returncode == 2
    assert "is not a folder" in done.stderr


def test_a_browser_that_goes_away_is_no_error(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    (server.folder / "large.html").write_bytes(b" " * (32 << 20))
    request = f"GET {below(server, 'page/large.html')} HTTP/1.1\r\nHost: "
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.server_port)) as browser:
            # Reset the connection when it is closed.
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            browser.sendall(f"{request}127.0.0.1:{server.server_port}\r\n\r\n".encode())
            browser.recv(1024)
    deadline = time.monotonic() + 60
    while threading.active_count() > 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert names(server) == ["large.html"]
    assert capsys.readouterr().err == ""


def test_a_file_that_is_no_report_hides_no_other(server: Server) -> None:
    (server.folder / "page.html").write_text(leaked().to_html(), "utf-8")
    kinds: list[object] = [[], {}, 3, None, "other"]
    for number, kind in enumerate(kinds):
        (server.folder / f"{number}.json").write_text(json.dumps({"kind": kind}), "utf-8")
    assert names(server) == ["page.html"]


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text elsewhere")
def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/re\xffports"))
    folder.mkdir()
    (folder / os.fsdecode(b"p\xe9ge %41.html")).write_text(leaked().to_html(), "utf-8")
    with Server(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        status, index, _ = ask(server, below(server))
        assert (status, "re?ports" in index) == (200, True)
        (listed,) = json.loads(ask(server, below(server, "list"))[1])
        assert listed["name"] == "p\N{REPLACEMENT CHARACTER}ge %41.html"
        assert ask(server, below(server, f"page/{listed['path']}"))[0] == 200
        server.shutdown()
