"""What Linux alone has is not needed: the load test also runs on the reader's clock and without an epoll."""

import json
import subprocess
import sys

ELSEWHERE = """
import importlib, json, os, pkgutil, select, socket, sys, time
import gevent.server, locust  # they go by the real system; what follows shall not
from gevent import monkey

monkey.saved["select"].pop("epoll", None)
del os.sched_setaffinity, os.sched_getaffinity, os.sched_yield
sys.platform = "darwin"
import loadtest
for module in pkgutil.iter_modules(loadtest.__path__):
    importlib.import_module(f"loadtest.{module.name}")
from loadtest import endpoint, stamps
from loadtest.clock import RunClock
from loadtest.pacing import Alarm
from loadtest.plan import Timeouts
from loadtest.transport import Transport

def answer(connection, _):
    while connection.recv(65536):
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")

server = gevent.server.StreamServer(("127.0.0.1", 0), answer)
server.start()
where = endpoint.parse(f"http://127.0.0.1:{server.server_port}", "/x")
transport = Transport(where, Timeouts(), RunClock(), stamps.choose("auto"))
exchanges = [transport.call(b"GET /x HTTP/1.1\\r\\n\\r\\n").run() for _ in range(3)]
alarm = Alarm()
alarm.wait_until(time.monotonic_ns() + 5_000_000)
print(json.dumps({
    "poller": type(transport.pool.poller).__name__,
    "exact": alarm.exact,
    "seen": [[exchange.ending, exchange.stamp_source] for exchange in exchanges],
    "connections": transport.connections_opened,
}))
"""


def test_requests_are_made_and_stamped_without_epoll_timerfd_and_kernel_stamps() -> None:
    command = [sys.executable, "-c", ELSEWHERE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "poller": "HubPoller",
        "exact": False,
        "seen": [["complete", "user"]] * 3,
        "connections": 1,
    }
