package validate

import (
	"cmp"
	"crypto/rsa"
	"path"
	"strings"

	"golang.org/x/crypto/ssh"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

const (
	maxScript     = 1 << 20
	maxPrivateKey = 64 << 10
	maxHostKeys   = 16
	minRSABits    = 3072
)

// NewScript checks a script before it is added, and returns its description with the interpreter filled.
func NewScript(r *baremetalv1.AddScriptRequest) (*baremetalv1.Script, error) {
	if r.GetScript() == nil {
		return nil, Fault("script", "required")
	}
	out := proto.CloneOf(r.GetScript())
	out.CreatedAt, out.SizeBytes = nil, 0
	out.Interpreter = cmp.Or(out.GetInterpreter(), "/bin/sh")
	var f faults
	if !refForm.MatchString(out.GetScriptRef()) {
		f.add("script.script_ref", refRule)
	}
	if out.GetSha256() != "" && !digestForm.MatchString(out.GetSha256()) {
		f.add("script.sha256", "64 lower hex digits")
	}
	if i := out.GetInterpreter(); !path.IsAbs(i) || path.Clean(i) != i || text(i, maxText) != "" {
		f.add("script.interpreter", "the absolute path of a program")
	}
	if n := len(r.GetContent()); n == 0 || n > maxScript {
		f.add("content", "1 byte to 1 MiB")
	}
	return out, f.err()
}

// SSHCredentials checks credentials before they are stored. Errors never repeat a key.
func SSHCredentials(r *baremetalv1.SetSSHCredentialsRequest) error {
	var f faults
	if !refForm.MatchString(r.GetCredentialsRef()) {
		f.add("credentials_ref", refRule)
	}
	f.add("username", secretText(r.GetUsername(), maxUsername))
	f.add("private_key", privateKey(r.GetPrivateKey()))
	return f.err()
}

func privateKey(pem []byte) string {
	if len(pem) == 0 || len(pem) > maxPrivateKey {
		return "required, at most 64 KiB"
	}
	key, err := ssh.ParseRawPrivateKey(pem)
	if err != nil {
		return "not a private key without a passphrase, in OpenSSH's format or PEM"
	}
	if r, ok := key.(*rsa.PrivateKey); ok && r.N.BitLen() < minRSABits {
		return "an RSA key of fewer than 3072 bits"
	}
	if _, err := ssh.NewSignerFromKey(key); err != nil {
		return "a kind of key that SSH does not know"
	}
	return ""
}

// hostKeys are fingerprints, or lines of authorized_keys(5) of a kind that the site agent asks for.
func hostKeys(f *faults, at string, list []string) {
	if len(list) > maxHostKeys {
		f.add(at, "more than 16 keys")
		return
	}
	for _, k := range list {
		f.add(at, hostKey(k))
	}
}

func hostKey(s string) string {
	const rule = `each is "SHA256:" and 43 characters of base64, or a line such as "ssh-ed25519 AAAA…"`
	if sum, ok := strings.CutPrefix(s, "SHA256:"); ok {
		if sum = strings.TrimRight(sum, "="); len(sum) != 43 ||
			strings.Trim(sum, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") != "" {
			return rule
		}
		return ""
	}
	key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(s))
	if err != nil || len(rest) > 0 {
		return rule
	}
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA:
		return ""
	}
	return "a key of type " + key.Type() + " is not trusted: Ed25519, ECDSA and RSA are"
}
