# Copyright the Ingot authors. SPDX-License-Identifier: Apache-2.0
"""A client of the REST API, with what every plugin needs: the token, repeats of lost calls, and typed errors."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import base64
import json
import random
import socket
import ssl
import time

from ansible.module_utils.basic import env_fallback
from ansible.module_utils.common.text.converters import to_native, to_text
from ansible.module_utils.six.moves import http_client
from ansible.module_utils.six.moves.urllib.error import HTTPError, URLError
from ansible.module_utils.six.moves.urllib.parse import quote, urlencode
from ansible.module_utils.urls import ConnectionError as UnusableURL
from ansible.module_utils.urls import open_url

# The reasons that a moment cures.
PASSING = frozenset(
    (
        "RATE_LIMITED",
        "TOO_MANY_STREAMS",
        "CONTROLLER_OVERLOADED",
        "DATABASE_UNAVAILABLE",
        "CONTROLLER_DRAINING",
        "CONTROLLER_LEASE_LOST",
        "DATABASE_IN_DOUBT",
    )
)

# What Python says of a handshake whose connection has ended.
BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, socket.timeout)

ENDED = ("SUCCEEDED", "FAILED", "CANCELED")


def connection_arguments():
    """The argument_spec of the options in the documentation fragment "connection"."""
    return dict(
        url=dict(type="str", required=True, fallback=(env_fallback, ["INGOT_URL"])),
        ca_file=dict(type="path", fallback=(env_fallback, ["INGOT_CA_FILE"])),
        token=dict(type="str", no_log=True, fallback=(env_fallback, ["INGOT_TOKEN"])),
        token_file=dict(type="path", no_log=False, fallback=(env_fallback, ["INGOT_TOKEN_FILE"])),
        patience=dict(type="int", default=60),
    )


def client_of(module):
    """The client that a module's options ask for."""
    p = module.params
    try:
        return Client(p["url"], p["ca_file"], p["token"], p["token_file"], p["patience"])
    except IngotError as refused:
        fail(module, refused)


def fail(module, error, **values):
    """Ends a module with what an error says: the reason, the fields at fault, and the next step."""
    values.update(error.result())
    module.fail_json(msg=to_native(error), **values)


class IngotError(Exception):
    """A call that was refused, or that nobody has answered."""

    def __init__(self, message, reason="", status=0, metadata=None, violations=None):
        super(IngotError, self).__init__(message)
        self.message, self.reason, self.status = message, reason, status
        self.metadata, self.violations = metadata or {}, violations or {}

    def __str__(self):
        return "%s: %s" % (self.reason, self.message) if self.reason else self.message

    def result(self):
        return dict(reason=self.reason, status=self.status, metadata=self.metadata, violations=self.violations)


def error_of(status, raw):
    """The error that an answer's body is: a google.rpc.Status."""
    try:
        body = json.loads(to_text(raw))
        details = body.get("details") or []
        message = body["message"]
    except (ValueError, KeyError, AttributeError):
        return IngotError("HTTP %d: %s" % (status, to_native(raw[:300], errors="replace")), status=status)
    error = IngotError(message, status=status)
    for detail in details:
        kind = detail.get("@type", "").rpartition("/")[2]
        if kind == "google.rpc.ErrorInfo":
            error.reason, error.metadata = detail.get("reason", ""), detail.get("metadata") or {}
        elif kind == "google.rpc.BadRequest":
            for v in detail.get("field_violations") or detail.get("fieldViolations") or []:
                error.violations[v.get("field", "")] = v.get("description", "")
    return error


def refuses_server(error):
    """Whether a call failed as the server's certificate does not verify, or as it speaks no TLS: waiting cures neither.

    A handshake that only breaks off is a controller that goes, behind something that still takes connections for it.
    """
    why = error.reason if isinstance(error, URLError) else error
    if isinstance(why, (UnusableURL, ssl.CertificateError)):
        return True
    return isinstance(why, ssl.SSLError) and not isinstance(why, BROKEN_OFF) and "EOF" not in to_native(why)


def read_token(path):
    try:
        with open(path) as f:
            return f.read().strip()
    except (IOError, OSError) as e:
        raise IngotError("read the token: %s" % to_native(e))


def waits():
    """Seconds to wait before each next try: a quarter of one at first, five at most, with jitter."""
    wait = 0.25
    while True:
        yield wait / 2 + random.random() * wait / 2
        wait = min(2 * wait, 5.0)


class Client(object):
    """Calls of one controller. Every call that the collection makes may be sent twice."""

    def __init__(self, url, ca_file=None, token=None, token_file=None, patience=60):
        if not url.startswith("https://"):
            raise IngotError("url: %r does not begin with https://" % url)
        self.base, self.ca_file, self.patience = url.rstrip("/") + "/api/v1", ca_file, patience
        self.token = token or (read_token(token_file) if token_file else "")
        if not self.token:
            raise IngotError("a token is needed: token, token_file, INGOT_TOKEN or INGOT_TOKEN_FILE")

    def call(self, method, path, body=None, query=None, version=None, patience=None):
        """The answer of a call. It is repeated, as it is, while the controller is away."""
        url = self.base + path
        if query:
            url += "?" + urlencode(query)
        headers = {"Authorization": "Bearer " + self.token, "Content-Type": "application/json"}
        if version:
            headers["If-Match"] = '"%s"' % version
        data = None if body is None else json.dumps(body)
        end = time.time() + (self.patience if patience is None else patience)
        for wait in waits():
            try:
                return self.once(method, url, data, headers)
            except Transient as away:
                wait = max(wait, away.after)
                if time.time() + wait > end:
                    raise away.error
            time.sleep(wait)

    def once(self, method, url, data, headers):
        try:
            answer = open_url(
                url,
                data=data,
                headers=headers,
                method=method,
                ca_path=self.ca_file,
                timeout=65,
                http_agent="ingot-ansible",
            )
            return json.loads(to_text(answer.read()))
        except HTTPError as refused:
            error = error_of(refused.code, refused.read())
            if error.reason in PASSING or not error.reason and refused.code in (502, 503, 504):
                raise Transient(error, refused.headers.get("Retry-After"))
            raise error
        except (UnusableURL, URLError, socket.error, http_client.HTTPException, ValueError) as e:
            error = IngotError("%s %s: %s" % (method, url, to_native(e)))
            if refuses_server(e):
                raise error
            raise Transient(error)

    def machine(self, machine_id):
        """The machine, or None."""
        try:
            return self.call("GET", "/machines/" + quote(machine_id, safe=""))
        except IngotError as e:
            if e.reason == "MACHINE_NOT_FOUND":
                return None
            raise

    def machines(self, filter="", order_by=""):
        """All machines that match, page by page."""
        query = dict((k, v) for k, v in (("filter", filter), ("order_by", order_by)) if v)
        while True:
            page = self.call("GET", "/machines", query=query)
            for machine in page.get("machines") or []:
                yield machine
            if not page.get("next_page_token"):
                return
            query["page_token"] = page["next_page_token"]

    def inventory(self, machine_id):
        """The last inventory that the machine's agent has reported, or None."""
        try:
            answer = self.call("GET", "/machines/%s/inventory" % quote(machine_id, safe=""))
        except IngotError as e:
            if e.reason in ("INVENTORY_NOT_FOUND", "MACHINE_NOT_FOUND"):
                return None
            raise
        return json.loads(to_text(base64.b64decode(answer["document"])))

    def explain(self, machine_id, operation_id=""):
        """What a machine, or one of its operations, waits for and what may be done."""
        query = {"operation_id": operation_id} if operation_id else None
        return self.call("GET", "/machines/%s/explain" % quote(machine_id, safe=""), query=query)


class Transient(Exception):
    """An error that may pass."""

    def __init__(self, error, after=None):
        super(Transient, self).__init__(to_native(error))
        try:
            self.after = float(after or 0)
        except ValueError:
            self.after = 0.0
        self.error = error
