# Copyright the Ingot authors. SPDX-License-Identifier: Apache-2.0
"""Where the controller is, and as whom to call it: options that every module has."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type


class ModuleDocFragment(object):
    DOCUMENTATION = r"""
options:
  url:
    description:
      - Address of the controller's REST listener, such as C(https://ingot.example.net:50055).
      - The environment variable C(INGOT_URL) is used where it is not given.
    type: str
    required: true
  ca_file:
    description:
      - File with the root certificate of the controller, in PEM. Without it the system's roots count.
      - The environment variable C(INGOT_CA_FILE) is used where it is not given.
    type: path
  token:
    description:
      - The bearer token. The environment variable C(INGOT_TOKEN) is used where it is not given.
    type: str
  token_file:
    description:
      - File that holds the token and nothing else; used where I(token) is not given.
      - The environment variable C(INGOT_TOKEN_FILE) is used where it is not given.
    type: path
  patience:
    description:
      - How many seconds a call is repeated while the controller is away.
    type: int
    default: 60
notes:
  - Modules call the controller from where they run. Use C(delegate_to), or hosts with C(ansible_connection=local).
  - Only Python's standard library and ansible-core are needed.
"""
