package httpboot

import (
	"net/http"
	"strings"

	"github.com/ingot-metal/ingot/agent/site/cache"
)

type kind int

const (
	notFound kind = iota
	wrongMethod
	autoScript
	autoEFI
	self
	bootFile // file of token
	enrol
	blob
	phoneHome
)

// route is what a request is for.
type route struct {
	kind   kind
	token  string
	file   string
	sha256 string
}

// maxToken bounds the bytes of a token.
const maxToken = 128

// Names of boot files. iPXE on EFI finds an initrd by the last part of its path.
const (
	fileScript = "script.ipxe"
	fileKernel = "kernel"
	fileInitrd = "initrd"
	fileUKI    = "uki.efi"
)

// parseRoute reads method and path. Whatever is not exactly one of ours is not found; nothing here ever becomes the
// name of a file.
func parseRoute(method, path string) route {
	r := parsePath(path)
	get := method == http.MethodGet || method == http.MethodHead
	switch {
	case r.kind == notFound, get != r.posted() && (get || method == http.MethodPost):
		return r
	}
	return route{kind: wrongMethod}
}

// posted reports whether the request must be a POST.
func (r route) posted() bool { return r.kind == enrol || r.kind == phoneHome }

func parsePath(path string) route {
	switch path {
	case "/boot/auto.ipxe":
		return route{kind: autoScript}
	case "/boot/auto.efi":
		return route{kind: autoEFI}
	case "/boot/self":
		return route{kind: self}
	}
	if sha256, ok := strings.CutPrefix(path, "/blob/"); ok && cache.ValidDigest(sha256) {
		return route{kind: blob, sha256: sha256}
	}
	if secret, ok := strings.CutPrefix(path, "/phone-home/"); ok && validToken(secret) {
		return route{kind: phoneHome, token: secret}
	}
	rest, ok := strings.CutPrefix(path, "/boot/")
	token, file, two := strings.Cut(rest, "/")
	if !ok || !two || !validToken(token) {
		return route{}
	}
	switch file {
	case fileScript, fileKernel, fileInitrd, fileUKI:
		return route{kind: bootFile, token: token, file: file}
	case "enrol":
		return route{kind: enrol, token: token}
	}
	return route{}
}

// validToken reports whether a token is safe in a URL, on a kernel command line and in a script.
func validToken(token string) bool {
	if token == "" || len(token) > maxToken {
		return false
	}
	for _, r := range []byte(token) {
		ok := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
		if !ok {
			return false
		}
	}
	return true
}
