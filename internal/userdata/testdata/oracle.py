"""Prints, for every file, the types of its parts as Debian's cloud-init finds them: a line each, "FILE: TYPE TYPE".

A type that it has no handler for is in parentheses. Nothing is fetched: lists of URLs and archives are named only.
"""
import sys

from cloudinit import handlers, user_data


class Processor(user_data.UserDataProcessor):
    def __init__(self):
        self.paths, self.ssl_details = None, {}

    def _do_include(self, content, append_msg):
        self._name("text/x-include-url", append_msg)

    def _explode_archive(self, archive, append_msg):
        self._name("text/cloud-config-archive", append_msg)

    def _name(self, kind, append_msg):
        part = user_data.MIMENonMultipart(*kind.split("/"))
        part.set_payload("")
        append_msg.attach(part)


handled = set(handlers.INCLUSION_TYPES_MAP.values())
for name in sys.argv[1:]:
    types = []
    try:
        for part in Processor().process(open(name, "rb").read()).walk():
            if not user_data.is_skippable(part):
                kind = part.get_content_type().replace("-once-url", "-url")
                types.append(kind if kind in handled else "(%s)" % kind)
    except Exception:
        types = ["error"]
    print("%s: %s" % (name.split("/")[-1], " ".join(types) or "nothing"))
