"""Client of an Ingot controller: connect, repeat safely, wait for operations, keep a copy of the fleet up to date."""

from .connection import Controller, connect, request_id
from .failures import OperationFailed, reason, retry_after, transient, violations
from .follow import Reconciler, ended, wait, watch_machines

__all__ = [
    "Controller",
    "OperationFailed",
    "Reconciler",
    "connect",
    "ended",
    "reason",
    "request_id",
    "retry_after",
    "transient",
    "violations",
    "wait",
    "watch_machines",
]
