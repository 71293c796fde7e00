package client

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Flags are the connection flags of the command line; empty means not given.
type Flags struct {
	Context, Server, CAFile, CAHash, TokenFile string
}

// Target is what a connection needs, with every source weighed.
type Target struct {
	Server, CAFile, CAHash, Token string
	// Login is the file of a sign-on, which counts where no source names a token.
	Login string
}

// ErrNoServer is returned when no source names a server.
var ErrNoServer = errors.New("no server: use --server, INGOT_SERVER, or a context (ingot config set-context)")

// Resolve weighs the sources: a flag wins over the environment, which wins over the context. Naming a CA in
// one way at one level hides both ways of the levels below; the same goes for tokens. A context that is asked
// for by name must exist. With ErrNoServer the target has the CA alone.
func Resolve(flags Flags, getenv func(string) string, file *File, dir string) (Target, error) {
	ctx, err := pick(flags.Context, file, dir)
	if err != nil {
		return Target{}, err
	}
	t := Target{Server: cmp.Or(flags.Server, getenv("INGOT_SERVER"), ctx.Server)}
	t.CAFile, t.CAHash = firstPair(
		[2]string{flags.CAFile, flags.CAHash},
		[2]string{getenv("INGOT_CA_FILE"), getenv("INGOT_CA_HASH")},
		[2]string{ctx.CAFile, ctx.CAHash},
	)
	if t.Server == "" {
		return t, ErrNoServer
	}
	tokenFile, token := firstPair(
		[2]string{flags.TokenFile, ""},
		[2]string{getenv("INGOT_TOKEN_FILE"), getenv("INGOT_TOKEN")},
		[2]string{ctx.TokenFile, ctx.Token},
	)
	if t.Token, err = readToken(tokenFile, token); err == nil && t.Token == "" {
		t.Login = LoginPath(dir, t.Server)
	}
	return t, err
}

func firstPair(pairs ...[2]string) (string, string) {
	for _, p := range pairs {
		if p[0] != "" || p[1] != "" {
			return p[0], p[1]
		}
	}
	return "", ""
}

// pick finds the context; files named in it are relative to the folder of the configuration.
func pick(name string, file *File, dir string) (Context, error) {
	wanted := cmp.Or(name, file.CurrentContext)
	c, ok := file.Contexts[wanted]
	if !ok && wanted != "" {
		return Context{}, fmt.Errorf("no context %q in the configuration; there are: %s", wanted,
			cmp.Or(strings.Join(file.Names(), ", "), "none"))
	}
	c.CAFile, c.TokenFile = beside(dir, c.CAFile), beside(dir, c.TokenFile)
	return c, nil
}

func beside(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// readToken prefers the literal token: INGOT_TOKEN next to INGOT_TOKEN_FILE is the more deliberate of the two.
func readToken(file, token string) (string, error) {
	if token != "" || file == "" {
		return token, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token = strings.TrimSpace(string(raw))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("read token: %s must hold one token and nothing else", file)
	}
	return token, nil
}
