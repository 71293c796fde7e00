package script_test

import xssh "golang.org/x/crypto/ssh"

func fingerprint(k xssh.PublicKey) string { return xssh.FingerprintSHA256(k) }
