package oci

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"
)

// authFile is the part of ~/.docker/config.json that `docker login`, `podman login --authfile` and `oras login
// --registry-config` write.
type authFile struct {
	Auths map[string]struct {
		Auth          string `json:"auth"`
		IdentityToken string `json:"identitytoken"`
	} `json:"auths"`
}

// credentialOf returns the file's credentials of a host: empty where it does not name it.
func credentialOf(path, host string) (auth.Credential, error) {
	if path == "" {
		return auth.EmptyCredential, nil
	}
	c, err := readCredential(path, host)
	if err != nil {
		return c, unavailable("images.registries.auth_file cannot be used: %v", err)
	}
	return c, nil
}

func readCredential(path, host string) (c auth.Credential, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return c, err
	}
	if info.Mode().Perm()&0o007 != 0 {
		return c, fmt.Errorf("%s can be read by everybody (mode %04o); make it 0600", path, info.Mode().Perm())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	var file authFile
	if err := json.Unmarshal(raw, &file); err != nil {
		return c, fmt.Errorf("%s has not the form of ~/.docker/config.json", path) // its text may hold a secret
	}
	for _, key := range keysOf(host) {
		entry, ok := file.Auths[key]
		if !ok {
			continue
		}
		c.RefreshToken = entry.IdentityToken
		if entry.Auth == "" {
			return c, nil
		}
		plain, err := base64.StdEncoding.DecodeString(entry.Auth)
		user, password, cut := strings.Cut(string(plain), ":")
		if err != nil || !cut {
			return c, errors.New("the auth of " + key + " is not user:password in base64")
		}
		c.Username, c.Password = user, password
		return c, nil
	}
	return c, nil
}

// keysOf are the names under which a host may stand in the file.
func keysOf(host string) []string {
	if host == "registry-1.docker.io" {
		return []string{host, "docker.io", "https://index.docker.io/v1/"}
	}
	return []string{host, "https://" + host}
}
