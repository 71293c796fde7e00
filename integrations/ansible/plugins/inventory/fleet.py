# Copyright the Ingot authors. SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
name: fleet
short_description: Machines of an Ingot controller as hosts
description:
  - Each machine that matches the filter is a host of the name of its id.
  - It is in groups by its site, its group, its effective state and its labels, and in those of I(keyed_groups).
  - Files of this inventory end in C(ingot.yml) or C(ingot.yaml).
  - "Variables of each host: C(ingot_machine_id), C(ingot_labels), C(ingot_spec), C(ingot_status), C(ingot_state),
    C(ingot_macs), with I(inventory) also C(ingot_inventory); C(ansible_host) and C(ansible_port) where they are known."
  - What the controller says is never evaluated as a template.
options:
  plugin:
    description: Must be C(ingot.metal.fleet).
    required: true
    choices: [ingot.metal.fleet]
  url:
    description: Address of the controller's REST listener, such as C(https://ingot.example.net:50055).
    type: str
    required: true
    env:
      - name: INGOT_URL
  ca_file:
    description: File with the root certificate of the controller, in PEM. Without it the system's roots count.
    type: path
    env:
      - name: INGOT_CA_FILE
  token:
    description: The bearer token; scope C(read) is enough. It may be a template, such as a lookup of a vault.
    type: str
    env:
      - name: INGOT_TOKEN
  token_file:
    description: File that holds the token and nothing else.
    type: path
    env:
      - name: INGOT_TOKEN_FILE
  patience:
    description: How many seconds a call is repeated while the controller is away.
    type: int
    default: 60
  filter:
    description: Terms of the filter language of C(ingot list), such as C(site=oslo,state in (IDLE, BUSY)).
    type: str
    default: ""
  group_by:
    description: What groups are made of. Names are C(site_oslo), C(group_web), C(state_idle), C(label_env_prod).
    type: list
    elements: str
    choices: [site, group, rack, state, labels]
    default: [site, group, state, labels]
  inventory:
    description: Also read the hardware that each machine's agent has reported; one call a machine.
    type: bool
    default: false
extends_documentation_fragment:
  - constructed
  - inventory_cache
author: The Ingot authors
"""

EXAMPLES = r"""
# oslo.ingot.yml
plugin: ingot.metal.fleet
url: https://ingot.example.net:50055
ca_file: /etc/ingot/ca.pem
token_file: ~/.config/ingot/token
filter: site=oslo,labels.env=prod
inventory: true
keyed_groups:
  - key: ingot_spec.rack
    prefix: rack
compose:
  ansible_user: "'debian'"
  memory_gib: ingot_inventory.memory.total_bytes // 2**30
"""

from ansible.errors import AnsibleParserError
from ansible.module_utils.common.text.converters import to_native
from ansible.module_utils.six import string_types
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var
from ansible_collections.ingot.metal.plugins.module_utils.rest import Client, IngotError


def address(machine):
    """Host and port of the machine's system, as far as they are known."""
    spec, status = machine.get("spec") or {}, machine.get("status") or {}
    endpoint = spec.get("ssh_endpoint") or ""
    if endpoint.startswith("["):
        host, _bracket, port = endpoint[1:].partition("]")
        return host, port.lstrip(":")
    if endpoint.count(":") == 1:
        host, _colon, port = endpoint.partition(":")
        return host, port
    return endpoint or status.get("probed_address") or (spec.get("install_address") or "").partition("/")[0], ""


def harmless(value):
    """The value with each text marked that could be taken for a template."""
    if isinstance(value, dict):
        return dict((harmless(k), harmless(v)) for k, v in value.items())
    if isinstance(value, list):
        return [harmless(v) for v in value]
    return wrap_var(value) if isinstance(value, string_types) and "{" in value else value


def variables(machine, inventory):
    """The variables of a machine's host."""
    spec, status = machine.get("spec") or {}, machine.get("status") or {}
    out = {
        "ingot_machine_id": machine["machine_id"],
        "ingot_labels": machine.get("labels") or {},
        "ingot_spec": spec,
        "ingot_status": status,
        "ingot_state": status.get("effective_state", ""),
        "ingot_macs": spec.get("mac_addresses") or [],
    }
    if inventory is not None:
        out["ingot_inventory"] = inventory
        nics = inventory.get("nics") or []
        out["ingot_macs"] = sorted(set(out["ingot_macs"]).union(n["mac"] for n in nics if n.get("mac")))
    host, port = address(machine)
    if host:
        out["ansible_host"] = host
    if port:
        out["ansible_port"] = int(port)
    return out


def groups(machine, group_by):
    """Names of the machine's groups, before what group names cannot hold is replaced."""
    spec = machine.get("spec") or {}
    for key in group_by:
        if key == "labels":
            for label, value in sorted((machine.get("labels") or {}).items()):
                yield "label_%s_%s" % (label, value) if value else "label_%s" % label
        else:
            value = machine["status"].get("effective_state", "").lower() if key == "state" else spec.get(key)
            if value:
                yield "%s_%s" % (key, value)


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    NAME = "ingot.metal.fleet"

    def verify_file(self, path):
        return super(InventoryModule, self).verify_file(path) and path.endswith(("ingot.yml", "ingot.yaml"))

    def parse(self, inventory, loader, path, cache=True):
        super(InventoryModule, self).parse(inventory, loader, path, cache)
        self._read_config_data(path)
        for machine in self.fleet(path, cache):
            self.add(machine)

    def fleet(self, path, cache):
        """The machines, out of the cache where the user wants one and it holds them."""
        self.load_cache_plugin()
        key = self.get_cache_key(path)
        use = self.get_option("cache")
        if use and cache and key in self._cache:
            return self._cache[key]
        try:
            machines = self.read()
        except IngotError as refused:
            raise AnsibleParserError("%s: %s" % (path, to_native(refused)))
        if use:
            self._cache[key] = machines
        return machines

    def read(self):
        token = self.get_option("token")
        if token and self.templar.is_template(token):
            token = self.templar.template(token, disable_lookups=False)
        url, ca_file, token_file, patience = (self.get_option(o) for o in ("url", "ca_file", "token_file", "patience"))
        client = Client(url, ca_file, token, token_file, patience)
        machines = list(client.machines(self.get_option("filter")))
        if self.get_option("inventory"):
            for machine in machines:
                machine["inventory"] = client.inventory(machine["machine_id"]) or {}
        return machines

    def add(self, machine):
        name = machine["machine_id"]
        self.inventory.add_host(name)
        # Marked, so that neither a play nor the expressions below evaluate what somebody has written into a label.
        host = harmless(variables(machine, machine.get("inventory")))
        for key, value in host.items():
            self.inventory.set_variable(name, key, value)
        for group in groups(machine, self.get_option("group_by")):
            self.inventory.add_child(self.inventory.add_group(self._sanitize_group_name(group)), name)
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), host, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), host, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), host, name, strict=strict)
