"""A connection to a controller: TLS, the bearer token, and repeats of calls whose answer was lost."""

import hashlib
import random
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Iterator, Optional, Type

import grpc

from baremetal.v1 import (
    access_pb2_grpc,
    admin_pb2_grpc,
    budget_pb2_grpc,
    cluster_pb2_grpc,
    maas_pb2_grpc,
    machine_pb2_grpc,
    node_pb2_grpc,
    operation_pb2_grpc,
    plan_pb2_grpc,
    rollout_pb2_grpc,
    run_pb2_grpc,
    script_pb2_grpc,
    workflow_pb2_grpc,
)

from .failures import retry_after, transient

# Calls that may not be sent twice: a repeat would make a second token or event, or meet a state that the first has
# changed. Every other one is a read, carries a request id, or sets a value.
ONCE = frozenset(
    (
        "/baremetal.v1.AdminService/IssueBootstrapToken",
        "/baremetal.v1.AdminService/CreateAPIToken",
        "/baremetal.v1.AdminService/SettleCommand",
        "/baremetal.v1.AdminService/CreateWebhook",
        "/baremetal.v1.AdminService/RedeliverWebhook",
        "/baremetal.v1.AdminService/TestWebhook",
        "/baremetal.v1.AdminService/DiscoverBMCs",
        "/baremetal.v1.RolloutService/ResumeRollout",
    )
)

# A controller that stands still keeps its connections open; only pings notice it. More often is refused.
OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", 4 << 20),
)


def backoff() -> Iterator[float]:
    """Seconds to wait before each next try: a quarter of one at first, five at most, with jitter."""
    wait = 0.25
    while True:
        yield wait / 2 + random.random() * wait / 2
        wait = min(2 * wait, 5.0)


class _Repeat(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Sends a call again, with the same body, while the controller is away."""

    def __init__(self, patience: float) -> None:
        self.patience = patience

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        start = time.monotonic()
        for pause in backoff():
            call = continuation(details, request)
            error = call.exception()
            if error is None or details.method in ONCE or not transient(error):
                return call
            pause = max(pause, retry_after(error))
            if time.monotonic() + pause - start > self.patience:
                return call
            time.sleep(pause)


class Controller:
    """The services of a controller over one connection. It is a context manager."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.access = access_pb2_grpc.AccessServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)
        self.budgets = budget_pb2_grpc.BudgetServiceStub(channel)
        self.clusters = cluster_pb2_grpc.ClusterServiceStub(channel)
        self.maas = maas_pb2_grpc.MAASServiceStub(channel)
        self.machines = machine_pb2_grpc.MachineServiceStub(channel)
        self.nodes = node_pb2_grpc.NodeServiceStub(channel)
        self.operations = operation_pb2_grpc.OperationServiceStub(channel)
        self.plans = plan_pb2_grpc.PlanServiceStub(channel)
        self.rollouts = rollout_pb2_grpc.RolloutServiceStub(channel)
        self.runs = run_pb2_grpc.RunServiceStub(channel)
        self.scripts = script_pb2_grpc.ScriptServiceStub(channel)
        self.workflows = workflow_pb2_grpc.WorkflowServiceStub(channel)

    def close(self) -> None:
        """Ends the connection and what is under way on it."""
        self.channel.close()

    def __enter__(self) -> "Controller":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


def connect(
    server: str,
    *,
    ca_file: Optional[str] = None,
    token: Optional[str] = None,
    token_file: Optional[str] = None,
    patience: float = 60.0,
) -> Controller:
    """Connects to host:port; it does not wait for the server.

    ca_file is a PEM file with the root that has signed the server's certificate. token_file holds the bearer token and
    nothing else; it is read for each call, so that a token can be replaced under a program that runs. A call that may
    be sent twice is repeated for patience seconds while the controller is away.
    """

    def bearer(_: Any, done: Callable[..., None]) -> None:
        try:
            secret = token or (Path(token_file).read_text(encoding="ascii").strip() if token_file else "")
            done((("authorization", "Bearer " + secret),) if secret else (), None)
        except OSError as error:
            done((), error)

    roots = Path(ca_file).read_bytes() if ca_file else None
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(roots), grpc.metadata_call_credentials(bearer, name="ingot")
    )
    channel = grpc.secure_channel(server, credentials, options=OPTIONS)
    return Controller(grpc.intercept_channel(channel, _Repeat(patience)))


def request_id(*words: str) -> str:
    """The id of a piece of work out of what it means, such as "deploy", "v2.1", "m-1".

    The same words are the same id, however often and wherever the program runs, so that the work happens once. What a
    request id cannot hold becomes an underscore, and a long one ends in a hash of all words.
    """
    text = "-".join(words)
    clean = "".join(c if " " < c <= "~" else "_" for c in text)
    if clean == text and len(text) <= 128:
        return text
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    return clean[: 127 - len(digest)] + "-" + digest
