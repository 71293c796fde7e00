"""Following work and the fleet across broken streams and restarts of the controller."""

import os
import tempfile
import time
from pathlib import Path
from typing import Callable, Iterator, Optional, Set

import grpc

from baremetal.v1 import machine_pb2, operation_pb2

from .connection import Controller, backoff
from .failures import OperationFailed, reason, retry_after, transient

Operation = operation_pb2.Operation
Machine = machine_pb2.Machine


def ended(operation: Operation) -> bool:
    """Whether an operation has ended. It never changes afterwards."""
    return operation.phase in (Operation.SUCCEEDED, Operation.FAILED, Operation.CANCELED)


def wait(
    controller: Controller,
    operation_id: str,
    changed: Optional[Callable[[operation_pb2.OperationEvent], None]] = None,
    timeout: Optional[float] = None,
) -> Operation:
    """Returns an operation when it has succeeded; OperationFailed is raised where it has ended otherwise.

    changed is called with each event, once and in order. After timeout seconds TimeoutError is raised; the operation
    goes on without us.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    cursor, seq, pauses = "", 0, backoff()
    event: operation_pb2.OperationEvent
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError(f"operation {operation_id} has not ended within {timeout} s")
        request = operation_pb2.WatchOperationsRequest(filter="operation_id=" + operation_id, cursor=cursor)
        stream = controller.operations.WatchOperations(request, timeout=left)
        try:
            for event in stream:
                cursor, pauses = event.cursor, backoff()
                if changed is not None and (event.seq > seq or event.seq == 0):
                    changed(event)
                seq = max(seq, event.seq)
                if ended(event.snapshot):
                    if event.snapshot.phase != Operation.SUCCEEDED:
                        raise OperationFailed(event.snapshot)
                    return event.snapshot
        except grpc.RpcError as error:
            if reason(error) == "CURSOR_EXPIRED":  # the database was restored: everything once more
                cursor = ""
            elif error.code() == grpc.StatusCode.DEADLINE_EXCEEDED and deadline is not None:
                continue
            elif transient(error):
                time.sleep(max(next(pauses), retry_after(error)))
            else:
                raise
        finally:
            stream.cancel()


def watch_machines(
    controller: Controller, filter: str = "", cursor: str = ""
) -> Iterator[machine_pb2.MachineEvent]:
    """The machines that match, and then each change, for ever.

    Broken streams are resumed: no change is missed, and one may come twice; compare machine.version. Where the database
    was restored the machines come once more as CURRENT: what does not come up to the BOOKMARK is not there any more.
    """
    pauses = backoff()
    event: machine_pb2.MachineEvent
    while True:
        stream = controller.machines.WatchMachines(machine_pb2.WatchMachinesRequest(filter=filter, cursor=cursor))
        try:
            for event in stream:
                pauses = backoff()
                yield event
                cursor = event.cursor
        except grpc.RpcError as error:
            if reason(error) == "CURSOR_EXPIRED":
                cursor = ""
            elif transient(error):
                time.sleep(max(next(pauses), retry_after(error)))
            else:
                raise
        finally:
            stream.cancel()


class Reconciler:
    """Keeps a copy of the fleet up to date without a stream.

    It walks the fleet once, and then reads what has changed. It misses no change, deletions included, however long it
    was away: its cursor is in a file, so that the next run goes on where the last one ended.

    apply takes a machine that is new or has changed; one with deleted_at is gone. A machine may come again as it was:
    compare version. walked takes the ids of all machines at the end of a full walk: what the copy has besides is gone.
    """

    def __init__(
        self,
        controller: Controller,
        cursor_file: str,
        apply: Callable[[Machine], None],
        walked: Optional[Callable[[Set[str]], None]] = None,
    ) -> None:
        self.controller = controller
        self.cursor_file = Path(cursor_file)
        self.apply = apply
        self.walked = walked

    def run(self, every: float = 10.0) -> None:
        """Passes for ever, with a rest of so many seconds."""
        pauses = backoff()
        while True:
            try:
                self.once()
                pause, pauses = every, backoff()
            except grpc.RpcError as error:
                if not transient(error):
                    raise
                pause = max(next(pauses), retry_after(error))
            time.sleep(pause)

    def once(self) -> None:
        """Reads everything that has changed since the last pass, and returns when there is nothing more."""
        cursor = self.cursor_file.read_text(encoding="ascii").strip() if self.cursor_file.exists() else ""
        if cursor:
            try:
                self._changes(cursor)
                return
            except grpc.RpcError as error:
                if reason(error) != "CURSOR_EXPIRED":
                    raise
        self._changes(self._walk())

    def _changes(self, cursor: str) -> None:
        more = True
        while more:
            page = self.controller.machines.ListMachines(machine_pb2.ListMachinesRequest(cursor=cursor))
            for machine in page.machines:
                self.apply(machine)
            cursor, more = page.next_cursor, page.more
            self._keep(cursor)

    def _walk(self) -> str:
        """Applies the whole fleet. The cursor is that of before the first page: what changes meanwhile comes after."""
        request, cursor = machine_pb2.ListMachinesRequest(), ""
        ids: Set[str] = set()
        while True:
            page = self.controller.machines.ListMachines(request)
            cursor = cursor or page.next_cursor
            for machine in page.machines:
                self.apply(machine)
                ids.add(machine.machine_id)
            request.page_token = page.next_page_token
            if not request.page_token:
                break
        if self.walked is not None:
            self.walked(ids)
        self._keep(cursor)
        return cursor

    def _keep(self, cursor: str) -> None:
        """Replaces the file, so that it holds the old cursor or the new one, whatever happens."""
        with tempfile.NamedTemporaryFile("w", dir=self.cursor_file.parent, delete=False, encoding="ascii") as file:
            file.write(cursor + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, self.cursor_file)
