#!/usr/bin/python
# Copyright the Ingot authors. SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: machine
short_description: Register, change or remove a machine of an Ingot controller
description:
  - Sets the labels and the fields of the spec that are given, and leaves all others alone.
  - Starts no work on the machine; M(ingot.metal.operation) does.
options:
  machine_id:
    description: The machine, C([a-z0-9.-]), the first a letter or digit.
    type: str
    required: true
    aliases: [name]
  state:
    description:
      - C(present) registers the machine where it is not known, and changes what differs.
      - C(absent) removes it from the inventory; a tombstone stays, so that its id does not come back. The same hardware
        returns as a new record under a new id.
    type: str
    choices: [present, absent]
    default: present
  labels:
    description:
      - Labels by key. A value that is empty or null removes the label.
      - A label that is not named is never removed; budgets, claims and other tools go by labels too.
    type: dict
  purge:
    description:
      - With C(absent), also remove one whose system runs, without a decommission. Needs a token of scope admin.
    type: bool
    default: false
  spec:
    description: What is said of the machine. A field that is not given stays; one that is empty is cleared.
    type: dict
    suboptions:
      ssh_endpoint:
        description: C(host:port) of the machine's SSH server.
        type: str
      bmc_endpoint:
        description: C(host) or C(host:port) of the management controller. Another one needs a token of scope admin.
        type: str
      target_cluster_ref:
        description: The cluster that the machine is meant for.
        type: str
      mac_addresses:
        description: MAC addresses, in any common notation.
        type: list
        elements: str
      provider:
        description: What drives the machine, C(agent), C(maas) or C(fake).
        type: str
      serial:
        description: Chassis serial number.
        type: str
      rack:
        description: The rack that it stands in.
        type: str
      location:
        description: Where the rack is.
        type: str
      region:
        description: The region.
        type: str
      customer_id:
        description: Whose machine it is.
        type: str
      external_id:
        description: Identifier of another system. It cannot be changed once it is set.
        type: str
      group:
        description: Machines of one group share policies.
        type: str
      site:
        description: The site whose agent serves the machine's segment.
        type: str
      default_image_ref:
        description: Image of a reimage that names none.
        type: str
      bmc_credentials_ref:
        description: Name of the credentials of its BMC. Another one needs a token of scope admin.
        type: str
      install_disk:
        description: Which disk a reimage writes, such as C(serial=S4AAAA1).
        type: str
      install_mirror:
        description: Which second disk becomes a RAID 1 with the first, such as C(serial=S4AAAA2).
        type: str
      data_disks:
        description: Path and rule of each disk that the system mounts there, such as C(/srv serial=S4AAAA3).
        type: list
        elements: str
      protected_disks:
        description: Rules of disks that are never written.
        type: list
        elements: str
      ssh_host_keys:
        description: Keys that the SSH server may show.
        type: list
        elements: str
      ssh_credentials_ref:
        description: Name of the credentials of its SSH server.
        type: str
      provider_ref:
        description: The MAAS region of a machine of provider C(maas).
        type: str
      install_path:
        description: How a reimage gets into the installer, C(auto), C(kexec), C(bootnext), C(bmc) or C(media).
        type: str
      install_address:
        description: Address that the installer takes, with the length of its prefix.
        type: str
extends_documentation_fragment: ingot.metal.connection
attributes:
  check_mode:
    description: Says what would change, and changes nothing.
    support: full
  diff_mode:
    description: Shows the labels and fields that differ, before and after.
    support: full
author: The Ingot authors
"""

EXAMPLES = r"""
- name: The machines of a rack
  ingot.metal.machine:
    machine_id: "{{ item.name }}"
    labels: {env: prod, owner: null}
    spec:
      site: oslo
      rack: r42
      mac_addresses: ["{{ item.mac }}"]
  loop: "{{ rack }}"
  delegate_to: localhost

- name: One that was scrapped
  ingot.metal.machine:
    machine_id: r42-07
    state: absent
  delegate_to: localhost
"""

RETURN = r"""
machine:
  description: The machine as it is now; in check mode, as it was.
  returned: where there is one
  type: dict
reason:
  description: The reason of a refusal, one of C(docs/reference/errors.md) of Ingot.
  returned: on failure
  type: str
violations:
  description: The fields that the controller finds fault with.
  returned: on failure
  type: dict
"""

import re
import uuid

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.six.moves.urllib.parse import quote
from ansible_collections.ingot.metal.plugins.module_utils.rest import IngotError, client_of, connection_arguments, fail

TEXTS = (
    "ssh_endpoint bmc_endpoint target_cluster_ref provider serial rack location region customer_id external_id group "
    "site default_image_ref bmc_credentials_ref install_disk install_mirror ssh_credentials_ref provider_ref "
    "install_path install_address"
).split()
LISTS = "mac_addresses data_disks protected_disks ssh_host_keys".split()


def mac(text):
    """A MAC address as the API writes it; whatever is none stays for the controller to refuse."""
    digits = re.sub(r"[^0-9a-f]", "", text.lower())
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2)) if len(digits) == 12 else text


def text(value):
    """A label's value out of YAML."""
    if value is None:
        return ""
    return to_text(value).lower() if isinstance(value, bool) else to_text(value)


def wanted(params):
    """What is managed, by path of the field mask: labels.KEY and spec.FIELD. Empty values clear."""
    out = dict(("labels." + key, text(value)) for key, value in (params["labels"] or {}).items())
    for field, value in (params["spec"] or {}).items():
        if value is not None:
            out["spec." + field] = [mac(m) for m in value] if field == "mac_addresses" else value
    return out


def values(machine, paths):
    """What a machine has at these paths."""
    out = {}
    for path in paths:
        part, key = path.split(".", 1)
        empty = [] if part == "spec" and key in LISTS else ""
        out[path] = (machine.get(part) or {}).get(key) or empty
    return out


def plan(machine, params):
    """The paths to set: to what, and what they are now."""
    want = wanted(params)
    have = values(machine, want)
    paths = [p for p in sorted(want) if want[p] != have[p]]
    return dict((p, want[p]) for p in paths), dict((p, have[p]) for p in paths)


def tree(machine_id, paths):
    """The machine that a request carries."""
    out = {"machine_id": machine_id, "labels": {}, "spec": {}}
    for path, value in paths.items():
        part, key = path.split(".", 1)
        if value:
            out[part][key] = value
    return out


def create(client, params):
    machine_id, want = params["machine_id"], wanted(params)
    # Of this run alone: the next one finds the machine. Repeats of a lost call carry the same id.
    query = {"create_only": "true", "request_id": "ansible-" + uuid.uuid4().hex}
    return client.call("POST", "/machines", tree(machine_id, want), query)


def update(client, machine, change):
    query = {"update_mask": ",".join(sorted(change))}
    return client.call(
        "PUT",
        "/machines/" + quote(machine["machine_id"], safe=""),
        tree(machine["machine_id"], change),
        query,
        version=machine["version"],
    )


def present(client, params, check):
    """Whether something changes, the machine, and both sides of the difference."""
    for tries in range(5):
        machine = client.machine(params["machine_id"])
        change, before = plan(machine or {}, params)
        try:
            if machine is None:
                after = dict((p, v) for p, v in change.items() if v)
                after["machine_id"] = params["machine_id"]
                return True, None if check else create(client, params), {}, after
            if not change or check:
                return bool(change), machine, before, change
            after = update(client, machine, change)
            # The controller has the last word: what it writes otherwise is no change when it is so already.
            return after["version"] != machine["version"], after, before, change
        except IngotError as refused:
            # Somebody else has made or changed it meanwhile: look again.
            if refused.reason not in ("VERSION_CONFLICT", "MACHINE_EXISTS") or tries == 4:
                raise


def absent(client, params, check):
    machine = client.machine(params["machine_id"])
    if machine is None:
        return False, None, {}, {}
    if not check:
        query = {"purge": "true"} if params["purge"] else None
        try:
            client.call("DELETE", "/machines/" + quote(params["machine_id"], safe=""), query=query)
        except IngotError as refused:
            # The answer to a delete was lost, and the repeat finds nothing any more.
            if refused.reason not in ("MACHINE_NOT_FOUND", "MACHINE_DELETED"):
                raise
    return True, None, {"machine_id": params["machine_id"]}, {}


def main():
    fields = dict((f, dict(type="str")) for f in TEXTS)
    fields.update((f, dict(type="list", elements="str")) for f in LISTS)
    spec = dict(
        machine_id=dict(type="str", required=True, aliases=["name"]),
        state=dict(type="str", choices=["present", "absent"], default="present"),
        labels=dict(type="dict"),
        purge=dict(type="bool", default=False),
        spec=dict(type="dict", options=fields),
    )
    spec.update(connection_arguments())
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        act = present if module.params["state"] == "present" else absent
        changed, machine, before, after = act(client_of(module), module.params, module.check_mode)
    except IngotError as refused:
        fail(module, refused)
    result = dict(changed=changed, diff=dict(before=before, after=after))
    if machine:
        result["machine"] = machine
    module.exit_json(**result)


if __name__ == "__main__":
    main()
