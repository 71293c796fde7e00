"""What an error says: the closed reason, the fields at fault, and whether waiting helps."""

from typing import Dict, Optional, Type, TypeVar

import grpc
from google.protobuf.message import Message

from baremetal.v1 import operation_pb2
from ingot import errors_pb2

M = TypeVar("M", bound=Message)

# The reasons that a moment cures.
PASSING = frozenset(
    (
        "RATE_LIMITED",
        "TOO_MANY_STREAMS",
        "CONTROLLER_OVERLOADED",
        "SLOW_READER",
        "DATABASE_UNAVAILABLE",
        "CONTROLLER_DRAINING",
        "CONTROLLER_LEASE_LOST",
        "DATABASE_IN_DOUBT",
        "ROLES_CHANGED",
    )
)


# What grpc says of a server whose certificate does not verify, is of another name, or that speaks no TLS or HTTP/2:
# waiting cures none of these. A handshake that only breaks off is a controller that goes, behind something that still
# takes connections for it; grpc's words for that are others ("Handshake read failed", "Socket closed").
REFUSED_SERVER = ("handshake failed", "is not in peer certificate", "cannot check peer")


class OperationFailed(Exception):
    """An operation has ended without success."""

    def __init__(self, operation: operation_pb2.Operation) -> None:
        self.operation = operation
        phase = operation_pb2.Operation.Phase.Name(operation.phase)
        super().__init__(
            f"operation {operation.operation_id} on {operation.machine_id} is {phase}: "
            f"{operation.error.code}: {operation.error.message}"
        )

    @property
    def retryable(self) -> bool:
        """Whether a new operation, under another request id, may succeed as things are."""
        return self.operation.error.retryable


def _detail(error: BaseException, kind: Type[M]) -> Optional[M]:
    """The detail of an error of gRPC that has this message's name."""
    if not isinstance(error, grpc.RpcError) or not hasattr(error, "trailing_metadata"):
        return None
    trailers: Dict[str, bytes] = dict(error.trailing_metadata() or ())
    status = errors_pb2.Status.FromString(trailers.get("grpc-status-details-bin", b""))
    for detail in status.details:
        if detail.type_url.rpartition("/")[2] == "google.rpc." + kind.DESCRIPTOR.name:
            found: M = kind.FromString(detail.value)
            return found
    return None


def reason(error: BaseException) -> str:
    """The name of baremetal.v1.Reason that an error carries; empty where it has none.

    Switch on it, never on a message.
    """
    if isinstance(error, OperationFailed):
        return error.operation.error.code
    info = _detail(error, errors_pb2.ErrorInfo)
    return info.reason if info else ""


def violations(error: BaseException) -> Dict[str, str]:
    """The fields that the server finds fault with, and what is wrong with each."""
    bad = _detail(error, errors_pb2.BadRequest)
    return {v.field: v.description for v in bad.field_violations} if bad else {}


def retry_after(error: BaseException) -> float:
    """How many seconds the server asks to wait; 0 where it does not say."""
    info = _detail(error, errors_pb2.RetryInfo)
    seconds: float = info.retry_delay.seconds + info.retry_delay.nanos / 1e9 if info else 0.0
    return seconds


def transient(error: BaseException) -> bool:
    """Whether an error speaks of the connection or the moment rather than of the request."""
    if not isinstance(error, grpc.RpcError):
        return False
    code = error.code()
    if code == grpc.StatusCode.UNAVAILABLE:
        return not any(words in (error.details() or "").lower() for words in REFUSED_SERVER)
    if code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED):
        return reason(error) in PASSING
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
        return "RST_STREAM" in (error.details() or "")
    return False
