"""Prints, for every file with user-data of one part, whether Debian's cloud-init reads it: a line each, "FILE: taken" or
"FILE: ignored"."""
import logging
import sys

import jsonpatch
from cloudinit import handlers, safeyaml, util

logging.disable(logging.CRITICAL)
for name in sys.argv[1:]:
    text = open(name, encoding="utf-8").read()
    kind = handlers.type_from_starts_with(text)
    try:
        if kind == "text/cloud-config-archive":
            taken = isinstance(safeyaml.load(text), (list, set, type(None)))
        elif kind == "text/cloud-config-jsonp":
            # handlers/cloud_config.py, _merge_patch
            jsonpatch.JsonPatch.from_string(util.strip_prefix_suffix(text.lstrip(), prefix="#cloud-config-jsonp"))
            taken = True
        else:
            taken = isinstance(safeyaml.load(text), (dict, type(None)))  # as util.load_yaml
    except Exception:
        taken = False
    print("%s: %s" % (name.split("/")[-1], "taken" if taken else "ignored"))
