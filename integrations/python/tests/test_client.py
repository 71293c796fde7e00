"""Tests of the client against a real controller, which lab/e2e/clients starts.

What only the other side can do is asked for by a line of JSON on standard output, and answered by one.
"""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Callable, Dict, List, Set

import grpc
import ingot
from baremetal.v1 import machine_pb2, operation_pb2

MACHINE = os.environ["INGOT_MACHINE"]
SERVER = os.environ["INGOT_SERVER"]
CA_FILE = os.environ["INGOT_CA_FILE"]


def ask(what: str) -> None:
    print(json.dumps({"ask": what}), flush=True)
    sys.stdin.readline()


def controller() -> ingot.Controller:
    return ingot.connect(SERVER, ca_file=CA_FILE, token_file=os.environ["INGOT_TOKEN_FILE"])


class Client(unittest.TestCase):
    def setUp(self) -> None:
        self.c = controller()
        self.addCleanup(self.c.close)

    def register(self, name: str, rack: str = "") -> None:
        self.c.machines.RegisterMachine(
            machine_pb2.RegisterMachineRequest(
                machine=machine_pb2.Machine(machine_id=name, spec=machine_pb2.MachineSpec(rack=rack, provider="fake"))
            )
        )

    def reboot(self, request_id: str) -> operation_pb2.Operation:
        return self.c.machines.RebootMachine(
            machine_pb2.RebootMachineRequest(machine_id=MACHINE, request_id=request_id)
        )

    def test_work_happens_once_and_is_waited_for_over_a_restart(self) -> None:
        words = ingot.request_id("python", "kernel 6.1", "ä" * 200)
        first, again = self.reboot(words), self.reboot(words)
        self.assertEqual(first.operation_id, again.operation_id)
        events: List[operation_pb2.OperationEvent] = []
        restarted = []

        def changed(event: operation_pb2.OperationEvent) -> None:
            events.append(event)
            if not restarted:
                restarted.append(True)
                ask("restart")

        done = ingot.wait(self.c, first.operation_id, changed, timeout=120)
        self.assertEqual(done.phase, operation_pb2.Operation.SUCCEEDED)
        self.assertNotEqual(done.evidence["boot_id_before"], done.evidence["boot_id_after"])
        self.assertEqual([e.seq for e in events], list(range(1, len(events) + 1)))
        self.assertEqual(events[-1].kind, "succeeded")

    def test_errors_carry_reasons(self) -> None:
        with self.assertRaises(grpc.RpcError) as refused:
            self.c.machines.ReimageMachine(
                machine_pb2.ReimageMachineRequest(machine_id=MACHINE, request_id="python-reimage")
            )
        self.assertEqual(ingot.reason(refused.exception), "WRONG_PHASE")
        self.assertFalse(ingot.transient(refused.exception))
        with self.assertRaises(grpc.RpcError) as bad:
            self.c.machines.ListMachines(machine_pb2.ListMachinesRequest(filter="sight=x"))
        self.assertEqual(ingot.reason(bad.exception), "INVALID_FILTER")
        self.assertIn("filter", ingot.violations(bad.exception))

    def test_a_canceled_operation_is_an_error(self) -> None:
        # Nobody reaches a machine without an agent: the operation fails by itself.
        self.register("python-lonely")
        operation = self.c.machines.EnterMaintenance(
            machine_pb2.EnterMaintenanceRequest(machine_id="python-lonely", request_id="in")
        )
        ingot.wait(self.c, operation.operation_id, timeout=60)
        operation = self.c.machines.RebootMachine(
            machine_pb2.RebootMachineRequest(machine_id="python-lonely", request_id="reboot")
        )
        self.c.machines.CancelOperation(
            machine_pb2.CancelOperationRequest(operation_id=operation.operation_id)
        )
        with self.assertRaises(ingot.OperationFailed) as failed:
            ingot.wait(self.c, operation.operation_id, timeout=60)
        self.assertNotEqual(ingot.reason(failed.exception), "")
        self.assertTrue(ingot.ended(failed.exception.operation))

    def test_a_copy_misses_nothing_between_runs(self) -> None:
        folder = tempfile.mkdtemp()
        copy: Dict[str, str] = {}
        walks: List[Set[str]] = []

        def run() -> List[str]:
            seen = []

            def apply(machine: machine_pb2.Machine) -> None:
                seen.append(machine.machine_id)
                if machine.HasField("deleted_at"):
                    copy.pop(machine.machine_id, None)
                else:
                    copy[machine.machine_id] = machine.spec.rack

            # Each run is another object, as a program that is started anew.
            ingot.Reconciler(self.c, os.path.join(folder, "cursor"), apply, walks.append).once()
            return seen

        self.register("python-r1", "r1")
        self.register("python-r2", "r1")
        run()
        self.assertEqual(copy["python-r1"], "r1")
        self.assertIn("python-r2", walks[0])
        self.register("python-r1", "r2")
        self.c.machines.DeleteMachine(machine_pb2.DeleteMachineRequest(machine_id="python-r2"))
        seen = run()
        self.assertEqual(copy["python-r1"], "r2")
        self.assertNotIn("python-r2", copy)
        self.assertIn("python-r2", seen)
        self.assertEqual(len(walks), 1)

    def test_machines_are_watched(self) -> None:
        self.register("python-w1", "watched")
        kinds = []
        for event in ingot.watch_machines(self.c, "rack=watched"):
            kinds.append((machine_pb2.MachineEvent.Kind.Name(event.kind), event.machine.machine_id))
            if event.kind == machine_pb2.MachineEvent.BOOKMARK and len(kinds) == 2:
                self.register("python-w2", "watched")
            if event.machine.machine_id == "python-w2":
                break
        self.assertEqual(kinds[0], ("CURRENT", "python-w1"))
        self.assertEqual(kinds[-1], ("CHANGED", "python-w2"))

    def test_lists_are_filtered_and_sorted(self) -> None:
        from baremetal.v1 import budget_pb2

        for name in ("python-10", "python-9"):
            self.c.budgets.SetBudget(
                budget_pb2.SetBudgetRequest(budget=budget_pb2.Budget(name=name, domain="fleet", at_once=1000))
            )
        answer = self.c.budgets.ListBudgets(
            budget_pb2.ListBudgetsRequest(filter="name=python-*", order_by="name desc", page_size=1)
        )
        self.assertEqual([b.name for b in answer.budgets], ["python-10"])
        self.assertEqual(answer.total_size, 2)


class Proxy:
    """Takes connections for the controller, and lets serve do with each what it does; it has the first bytes."""

    def __init__(self, serve: Callable[[socket.socket, bytes, int], None], at: str = "127.0.0.1") -> None:
        self.listener = socket.create_server((at, 0))
        self.address = "%s:%d" % self.listener.getsockname()
        self.calls = 0
        self.serve = serve
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.calls += 1
            threading.Thread(target=self._serve, args=(client, self.calls), daemon=True).start()

    def _serve(self, client: socket.socket, nth: int) -> None:
        with client, contextlib.suppress(OSError):
            self.serve(client, client.recv(65536), nth)

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def to(address: str, hello: bytes) -> socket.socket:
    host, port = address.rsplit(":", 1)
    server = socket.create_connection((host, int(port)))
    server.sendall(hello)
    return server


def pass_on(client: socket.socket, hello: bytes, address: str) -> None:
    with to(address, hello) as server:
        def copy(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        up = threading.Thread(target=copy, args=(client, server), daemon=True)
        up.start()
        copy(server, client)
        up.join()


def say_nothing(_client: socket.socket, _hello: bytes) -> None:
    pass


def reset(client: socket.socket, _hello: bytes) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def say_half(client: socket.socket, hello: bytes) -> None:
    with to(SERVER, hello) as server:
        said = server.recv(65536)
    client.sendall(said[: len(said) // 2])


class Handshakes(unittest.TestCase):
    """A handshake that breaks off is a controller that goes; a certificate that does not verify stays as it is."""

    def call(self, address: str, patience: float) -> None:
        with ingot.connect(
            address, ca_file=CA_FILE, token_file=os.environ["INGOT_TOKEN_FILE"], patience=patience
        ) as c:
            c.machines.ListMachines(machine_pb2.ListMachinesRequest(page_size=1))

    def failure(self, address: str, patience: float) -> grpc.RpcError:
        with self.assertRaises(grpc.RpcError) as failed:
            self.call(address, patience)
        return failed.exception

    def test_one_that_breaks_off_is_tried_again(self) -> None:
        for how in (say_nothing, reset, say_half):
            with self.subTest(how.__name__):
                with Proxy(lambda client, hello, _: how(client, hello)) as going:
                    error = self.failure(going.address, 0)
                self.assertTrue(ingot.transient(error), error.details())

                def back(client: socket.socket, hello: bytes, nth: int) -> None:
                    if nth < 3:
                        how(client, hello)
                    else:
                        pass_on(client, hello, SERVER)

                with Proxy(back) as returning:
                    self.call(returning.address, 60)
                self.assertGreater(returning.calls, 2)

    def test_one_that_cannot_succeed_is_not(self) -> None:
        stranger = os.environ["INGOT_STRANGER"]
        for what, proxy in (
            ("another root", Proxy(lambda client, hello, _: pass_on(client, hello, stranger))),
            ("another name", Proxy(lambda client, hello, _: pass_on(client, hello, SERVER), "127.0.0.2")),
            ("no TLS", Proxy(lambda client, hello, _: client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))),
        ):
            with self.subTest(what), proxy:
                begun = time.monotonic()
                error = self.failure(proxy.address, 300)
                self.assertFalse(ingot.transient(error), error.details())
                self.assertLess(time.monotonic() - begun, 150, error.details())


class Types(unittest.TestCase):
    def test_the_package_is_typed(self) -> None:
        where = os.path.dirname(os.path.dirname(ingot.__file__))
        config = os.path.join(os.path.dirname(os.path.dirname(__file__)), "mypy.ini")
        checked = subprocess.run(
            ["mypy", "--config-file", config, os.path.join(where, "ingot")],
            cwd=where, capture_output=True, text=True, check=False,
        )
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
