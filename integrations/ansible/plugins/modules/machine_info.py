#!/usr/bin/python
# Copyright the Ingot authors. SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: machine_info
short_description: Read machines of an Ingot controller
description:
  - Gives one machine, those that match a filter, or all; on demand with hardware and with what they wait for.
options:
  machine_id:
    description: The machine to read. One that is not there gives an empty list.
    type: str
  filter:
    description: Terms of the filter language, such as C(site=oslo,state=ATTENTION).
    type: str
  order_by:
    description:
      - C(machine_id), C(site), C(rack), C(updated_at) or C(effective_state), and C( desc) for the other way round.
    type: str
  inventory:
    description: Also read the hardware that each machine's agent has reported; one call a machine.
    type: bool
    default: false
  explain:
    description: Also ask why each machine is as it is, and what may be done; one call a machine.
    type: bool
    default: false
extends_documentation_fragment: ingot.metal.connection
attributes:
  check_mode:
    description: Reads only, and so does the same.
    support: full
author: The Ingot authors
"""

EXAMPLES = r"""
- name: Machines that need somebody
  ingot.metal.machine_info:
    filter: state=ATTENTION
    explain: true
  delegate_to: localhost
  register: found

- ansible.builtin.debug:
    msg: "{{ item.machine_id }}: {{ item.explanation.summary }}"
  loop: "{{ found.machines }}"
"""

RETURN = r"""
machines:
  description:
    - The machines as the API gives them. See C(docs/reference/api.md) of Ingot.
    - C(inventory) and C(explanation) are added where they were asked for.
  returned: always
  type: list
  elements: dict
  sample: [{"machine_id": "r42-07", "labels": {}, "spec": {"site": "oslo"}, "status": {"effective_state": "IDLE"}}]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ingot.metal.plugins.module_utils.rest import IngotError, client_of, connection_arguments, fail


def read(client, params):
    if params["machine_id"]:
        one = client.machine(params["machine_id"])
        machines = [one] if one else []
    else:
        machines = list(client.machines(params["filter"] or "", params["order_by"] or ""))
    for machine in machines:
        if params["inventory"]:
            machine["inventory"] = client.inventory(machine["machine_id"])
        if params["explain"]:
            machine["explanation"] = client.explain(machine["machine_id"])
    return machines


def main():
    spec = dict(
        machine_id=dict(type="str"),
        filter=dict(type="str"),
        order_by=dict(type="str"),
        inventory=dict(type="bool", default=False),
        explain=dict(type="bool", default=False),
    )
    spec.update(connection_arguments())
    module = AnsibleModule(
        argument_spec=spec,
        supports_check_mode=True,
        mutually_exclusive=[("machine_id", "filter"), ("machine_id", "order_by")],
    )
    try:
        module.exit_json(changed=False, machines=read(client_of(module), module.params))
    except IngotError as refused:
        fail(module, refused)


if __name__ == "__main__":
    main()
