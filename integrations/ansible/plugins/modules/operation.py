#!/usr/bin/python
# Copyright the Ingot authors. SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: operation
short_description: Reboot or install a machine of an Ingot controller, or move it in and out of maintenance
description:
  - Starts an operation and waits for its end. Done means evidence, such as another boot id.
  - A reboot or an installation happens at most once for each machine and I(request_id), however often the playbook is
    run and wherever it was killed. A run that finds it under way waits for it; one that finds it done changes nothing.
options:
  machine_id:
    description: The machine to work on.
    type: str
    required: true
    aliases: [name]
  action:
    description:
      - What is to be done. C(reboot) needs a machine in service or in maintenance, C(reimage) one in maintenance.
      - C(enter_maintenance) and C(exit_maintenance) without I(request_id) look at the machine, and change nothing where
        it is so already.
    type: str
    required: true
    choices: [reboot, reimage, enter_maintenance, exit_maintenance]
  request_id:
    description:
      - Names the work, such as C(kernel-6.1.99). Needed for C(reboot) and C(reimage). Do not make it out of the time or
        of chance, as a run after a crash must say the same.
      - After a failure another one is a new try.
    type: str
  maintenance:
    description:
      - Of C(reboot) and C(reimage). Take the machine out of service first, and put it in service after success.
      - Both happen once for I(request_id) too.
    type: bool
    default: false
  mode:
    description: Of a reboot.
    type: str
    choices: [graceful, force, bmc]
  image:
    description: Of a reimage, the image to write. Without it, the machine's or the controller's default.
    type: str
  path:
    description: Of a reimage, how the machine gets into the installer.
    type: str
    choices: [auto, kexec, bootnext, bmc, media]
  agentless:
    description: Of a reimage, write the image without an agent; cloud-init phones home.
    type: bool
    default: false
  seed:
    description: Of a reimage, what cloud-init of the new system is given.
    type: dict
    suboptions:
      hostname:
        description: Name of the new system; the machine's id where it is empty.
        type: str
      ssh_authorized_keys:
        description: Public keys of the image's default user.
        type: list
        elements: str
      user_data:
        description: cloud-init's user-data.
        type: str
      network_config:
        description: cloud-init's network configuration.
        type: str
  plan_id:
    description: Another plan than the default one. Of a reboot or a reimage.
    type: str
  timeout_seconds:
    description: How long a try of the step may take. Of a reboot or a reimage.
    type: int
  comment:
    description: Kept in the audit log. Of C(enter_maintenance) and C(exit_maintenance).
    type: str
  wait:
    description: Wait for the end. Otherwise the task is done when the controller has taken the operation.
    type: bool
    default: true
  wait_timeout:
    description: How many seconds to wait. The operation goes on after it, and the same task run again waits on.
    type: int
    default: 3600
extends_documentation_fragment: ingot.metal.connection
attributes:
  check_mode:
    description:
      - Says whether an operation would be started or waited for, and starts none. With I(maintenance) the controller is
        asked, and what it would refuse fails.
    support: full
  diff_mode:
    description: Shows the phase of the machine or of the operation.
    support: full
author: The Ingot authors
"""

EXAMPLES = r"""
- name: Reboot into a new kernel, one machine at a time
  hosts: site_oslo
  serial: 1
  gather_facts: false
  tasks:
    - ingot.metal.operation:
        machine_id: "{{ ingot_machine_id }}"
        action: reboot
        request_id: kernel-6.1.99
      delegate_to: localhost

- name: Install a machine and put it in service
  ingot.metal.operation:
    machine_id: r42-07
    action: reimage
    image: debian-13
    maintenance: true
    request_id: debian-13-rollout-2
    seed:
      ssh_authorized_keys: ["{{ lookup('file', '~/.ssh/id_ed25519.pub') }}"]
  delegate_to: localhost
"""

RETURN = r"""
operation:
  description: The operation as it is now, with its evidence. Missing where none was needed.
  returned: where there is one
  type: dict
  sample: {"operation_id": "op-01", "type": "REBOOT", "phase": "SUCCEEDED", "evidence": {"boot_id_after": "…"}}
reason:
  description: Why the call was refused or the operation failed, one of C(docs/reference/errors.md) of Ingot.
  returned: on failure
  type: str
retryable:
  description: Another I(request_id) may succeed without a change.
  returned: when an operation has failed
  type: bool
next_steps:
  description: What may be done, the best first.
  returned: when an operation has failed or was waited for in vain
  type: list
  elements: str
"""

import re
import time
import uuid

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.six.moves.urllib.parse import quote
from ansible_collections.ingot.metal.plugins.module_utils.rest import (
    ENDED,
    IngotError,
    client_of,
    connection_arguments,
    fail,
    waits,
)

PHASES = {"enter_maintenance": "MAINTENANCE", "exit_maintenance": "READY"}
NAME = re.compile(r"^[A-Za-z0-9._:/@+-]{1,120}$")


class Failed(IngotError):
    """An operation that has ended without success, or not ended in time."""

    def __init__(self, message, reason, operation, next_steps):
        super(Failed, self).__init__(message, reason)
        self.operation, self.next_steps = operation, next_steps

    def result(self):
        error = self.operation.get("error") or {}
        return dict(
            reason=self.reason,
            operation=self.operation,
            next_steps=self.next_steps,
            retryable=bool(error.get("retryable")),
        )


def body_of(action, params, request_id):
    """What the call is sent. A default that is left out is no other body than one that is spelled out."""
    out = {"request_id": request_id}
    names = {
        "reboot": ("mode", "plan_id", "timeout_seconds"),
        "reimage": ("path", "plan_id", "timeout_seconds", "agentless"),
    }.get(action, ("comment",))
    for name in names:
        if params[name]:
            out[name] = params[name]
    if action == "reimage":
        if params["image"]:
            out["image_ref"] = params["image"]
        seed = dict((k, v) for k, v in (params["seed"] or {}).items() if v)
        if seed:
            out["seed"] = seed
    return out


class Work(object):
    """Operations of one machine."""

    def __init__(self, client, params, check):
        self.client, self.params, self.check = client, params, check
        self.machine_id = params["machine_id"]
        self.end = time.time() + params["wait_timeout"]
        self.changed, self.operation, self.before, self.after = False, None, "", ""

    def known(self, request_id):
        """The machine's operation of this request, or None."""
        found = self.client.call(
            "GET", "/operations", query={"filter": 'machine_id=%s,request_id="%s"' % (self.machine_id, request_id)}
        )
        return (found.get("operations") or [None])[0]

    def run(self, action, request_id):
        """Starts the operation, or finds the one that the same request has started, and sees it to its end."""
        known = self.known(request_id)
        self.before = known["phase"] if known else "not asked for"
        self.changed = self.changed or known is None or known["phase"] not in ENDED
        self.after = "SUCCEEDED" if self.changed else self.before
        if self.check:
            self.operation = known
            return
        # Sent also where it is known: another body under the same id is refused.
        self.operation = self.client.call("POST", self.path(action), body_of(action, self.params, request_id))
        if self.params["wait"]:
            self.wait()

    def wait(self):
        path = "/operations/" + quote(self.operation["operation_id"], safe="")
        for pause in waits():
            if self.operation["phase"] in ENDED:
                break
            left = self.end - time.time()
            if left <= 0:
                raise self.late()
            time.sleep(min(pause, left))
            self.operation = self.client.call("GET", path, patience=max(self.client.patience, left))
        if self.operation["phase"] != "SUCCEEDED":
            raise self.failed()

    def late(self):
        o = self.operation
        why = o.get("wait_reason") or o.get("current_stage") or o["phase"]
        return Failed(
            "operation %s on %s has not ended in %d s (%s); it goes on, and the same task run again waits for it"
            % (o["operation_id"], self.machine_id, self.params["wait_timeout"], why),
            "WAIT_TIMEOUT",
            o,
            ["run the same task again"] + self.actions(),
        )

    def failed(self):
        o, error = self.operation, self.operation.get("error") or {}
        steps = self.actions()
        said = error.get("message", "")
        message = "operation %s on %s is %s: %s" % (o["operation_id"], self.machine_id, o["phase"], said)
        if error.get("retryable"):
            steps.append("run the task with another request_id")
        if steps:
            message += "; next: " + steps[0]
        return Failed(message, error.get("code", ""), o, steps)

    def actions(self):
        """The commands that the controller names; the question itself when it is not answered."""
        try:
            answer = self.client.explain(self.machine_id, self.operation["operation_id"])
        except IngotError:
            return ["ingot why %s" % self.operation["operation_id"]]
        return [a["command"] for a in answer.get("actions") or [] if a.get("command")]

    def move(self, action):
        """Moves the machine's phase, where it is another."""
        machine = self.client.machine(self.machine_id)
        if machine is None:
            raise IngotError("there is no machine %s" % self.machine_id, "MACHINE_NOT_FOUND")
        status = machine["status"]
        self.before = self.after = status["phase"]
        active = status.get("active_operation_id")
        under_way = self.client.call("GET", "/operations/" + quote(active, safe="")) if active else {}
        if under_way.get("type") == action.upper():
            # That of a run before this one.
            self.changed, self.operation, self.after = True, under_way, PHASES[action]
            if self.params["wait"] and not self.check:
                self.wait()
        elif status["phase"] != PHASES[action]:
            self.after = PHASES[action]
            self.changed = True
            if not self.check:
                self.run(action, "ansible-" + uuid.uuid4().hex)
                self.before, self.after = status["phase"], PHASES[action]

    def path(self, action):
        return "/machines/%s/%s" % (quote(self.machine_id, safe=""), action.replace("_", "-"))

    def validate(self, action, request_id):
        """Raises the refusal that the call would meet in maintenance, before the machine is taken out of service for it."""
        self.client.call("POST", self.path(action), dict(body_of(action, self.params, request_id), validate_only=True))

    def do(self):
        action, request_id = self.params["action"], self.params["request_id"]
        if not request_id:
            self.move(action)
            return
        if not self.params["maintenance"]:
            self.run(action, request_id)
            return
        around = request_id + ".enter", request_id + ".exit"
        if self.known(request_id) is None:
            if self.known(around[0]) is None:
                self.validate(action, request_id)
            self.run("enter_maintenance", around[0])
        # Where an earlier task has asked for the work alone, the machine is not this task's to put in service.
        entered = self.check or self.known(around[0]) is not None
        self.run(action, request_id)
        before, after, done = self.before, self.after, self.operation
        if entered and not self.check:
            self.run("exit_maintenance", around[1])
        self.before, self.after, self.operation = before, after, done


def check_arguments(module):
    p = module.params
    destructive = p["action"] in ("reboot", "reimage")
    if destructive and not p["request_id"]:
        module.fail_json(
            msg="request_id is required: it names this %s, so that a second run does not do it again" % p["action"]
        )
    if p["request_id"] and not NAME.match(p["request_id"]):
        module.fail_json(msg="request_id: 1 to 120 of letters, digits and . _ : / @ + -")
    if p["maintenance"] and not (destructive and p["wait"]):
        module.fail_json(msg="maintenance is for a reboot or a reimage that is waited for")
    allowed = {"reboot": ("mode",), "reimage": ("image", "path", "agentless", "seed")}
    for action, names in allowed.items():
        for name in names:
            if p[name] and p["action"] != action:
                module.fail_json(msg="%s is for action %s" % (name, action))


def main():
    spec = dict(
        machine_id=dict(type="str", required=True, aliases=["name"]),
        action=dict(type="str", required=True, choices=["reboot", "reimage", "enter_maintenance", "exit_maintenance"]),
        request_id=dict(type="str"),
        maintenance=dict(type="bool", default=False),
        mode=dict(type="str", choices=["graceful", "force", "bmc"]),
        image=dict(type="str"),
        path=dict(type="str", choices=["auto", "kexec", "bootnext", "bmc", "media"]),
        agentless=dict(type="bool", default=False),
        seed=dict(
            type="dict",
            options=dict(
                hostname=dict(type="str"),
                ssh_authorized_keys=dict(type="list", elements="str", no_log=False),
                user_data=dict(type="str", no_log=True),
                network_config=dict(type="str", no_log=True),
            ),
        ),
        plan_id=dict(type="str"),
        timeout_seconds=dict(type="int"),
        comment=dict(type="str"),
        wait=dict(type="bool", default=True),
        wait_timeout=dict(type="int", default=3600),
    )
    spec.update(connection_arguments())
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    check_arguments(module)
    try:
        work = Work(client_of(module), module.params, module.check_mode)
        work.do()
    except IngotError as refused:
        fail(module, refused)
    result = dict(changed=work.changed, diff=dict(before=work.before + "\n", after=work.after + "\n"))
    if work.operation:
        result["operation"] = work.operation
    module.exit_json(**result)


if __name__ == "__main__":
    main()
