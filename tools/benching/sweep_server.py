"""Debian's nginx as a Hub: pages of the list, small files, and weights by way of a redirect."""

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benching.distance import relayed

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"

# The commit of an answer is the one that was asked for, as on the Hub; 'main' has one of zeros.
# A page is chosen by its cursor, and says where the next one is.
_CONFIG = """
{user} worker_processes 1; daemon off; pid {root}/nginx.pid; error_log {root}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 100000000;
  default_type application/octet-stream;
  client_body_temp_path {root}/t1; proxy_temp_path {root}/t2; fastcgi_temp_path {root}/t3;
  uwsgi_temp_path {root}/t4; scgi_temp_path {root}/t5;
  map $request_uri $commit {{
    "~/resolve/(?<c>[0-9a-f]+)/" $c; default 0000000000000000000000000000000000000000;
  }}
  map $arg_cursor $next {{ {following} default ""; }}
  server {{
    listen 127.0.0.1:{hub} backlog=1024; root {root};
    location = /status {{ stub_status; }}
    location = /api/models {{
      default_type application/json; add_header Link $next;
      try_files /pages/$arg_cursor.json /pages/0.json =404;
    }}
    location ~ ^/(?<repo>[^/]+/[^/]+)/resolve/[^/]+/(?<file>.+\\.safetensors)$ {{
      add_header X-Repo-Commit $commit always; add_header ETag '"x"' always;
      return 302 {weights}/models/$repo/$file?range=$http_range;
    }}
    location ~ ^/(?<repo>[^/]+/[^/]+)/resolve/[^/]+/(?<file>.+)$ {{
      add_header X-Repo-Commit $commit always; try_files /models/$repo/$file =404;
    }}
  }}
  server {{ listen 127.0.0.1:{storage} backlog=1024; root {root}; }}
}}
"""


class Nginx:
    """A running server."""

    def __init__(self, url: str, status: str, pid: int) -> None:
        self.url = url
        self._status = status
        self._pid = pid

    def log(self) -> tuple[Any, ...]:
        """Nothing: requests are counted by `requests`."""
        return ()

    def requests(self) -> int:
        """Requests since the start, those for this number not counted."""
        with urllib.request.urlopen(self._status) as answer:  # noqa: S310 - our own
            counted = int(answer.read().split(b"\n")[2].split()[2])
        self._asked = getattr(self, "_asked", 0) + 1
        return counted - self._asked

    def cpu(self) -> float:
        """Seconds of processor time so far, of the one process that serves."""
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        ticks = 0
        for child in children:
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def nginx(root: Path, count: int, page: int, distance: float = 0.0) -> Iterator[Nginx]:
    """A server over what sweep_models.write wrote, ended on the way out.

    At a distance its answers come so many seconds later.
    """
    hub, storage = _free_port(), _free_port()
    fronts = {_free_port(): hub, _free_port(): storage} if distance else {}
    url, weights = (f"http://127.0.0.1:{port}" for port in fronts or (hub, storage))
    starts = range(page, count, page)
    following = " ".join(
        f'"{start - page or ""}" \'<{url}/api/models?cursor={start}>; rel="next"\';'
        for start in starts
    )
    config = root / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""  # else it serves as nobody, who may not read
    places = {"root": root, "hub": hub, "storage": storage, "weights": weights}
    config.write_text(_CONFIG.format(user=user, following=following, **places))
    process = subprocess.Popen(  # noqa: S603 - our own command
        [NGINX, "-c", str(config), "-e", str(root / "error.log")], stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(hub, process)
        with relayed(fronts, distance):
            yield Nginx(url, f"http://127.0.0.1:{hub}/status", process.pid)
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    message = "nginx does not serve (apt-get install nginx-light has it)"
    raise RuntimeError(message)
