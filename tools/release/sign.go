package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"aead.dev/minisign"
)

// passwordVariable names the variable of the environment that has the password of an encrypted key.
const passwordVariable = "INGOT_RELEASE_PASSWORD"

// key makes a key without a password, FILE, and its public half, FILE.pub.
func key(args []string, _ io.Writer) error {
	f := flag.NewFlagSet("key", flag.ContinueOnError)
	out := f.String("out", "", "file to write")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := required(f, "out"); err != nil {
		return err
	}
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	text, err := private.MarshalText()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(*out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // a key that exists is kept
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return writePublic(*out+".pub", public)
}

func writePublic(path string, public minisign.PublicKey) error {
	text, err := public.MarshalText()
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// sign writes FILE.minisig: an Ed25519 signature that minisign verifies, over the file and the comment. The public half
// of the key is written where --public names a file.
func sign(args []string, _ io.Writer) error {
	f := flag.NewFlagSet("sign", flag.ContinueOnError)
	keyFile := f.String("key", "", "file with the key of minisign")
	comment := f.String("comment", "", "text that is signed too")
	public := f.String("public", "", "file to write the public half to")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := required(f, "key", "comment"); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return errors.New("sign signs one file")
	}
	private, err := readKey(*keyFile)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(f.Arg(0))
	if err != nil {
		return err
	}
	half := private.Public().(minisign.PublicKey)
	r := minisign.NewReader(bytes.NewReader(content))
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	text := r.SignWithComments(private, *comment, "verify with the public key of Ingot's releases")
	if !minisign.Verify(half, content, text) {
		return errors.New("the signature does not verify")
	}
	if *public != "" {
		if err := writePublic(*public, half); err != nil {
			return err
		}
	}
	return os.WriteFile(f.Arg(0)+".minisig", text, 0o644)
}

func readKey(path string) (minisign.PrivateKey, error) {
	var private minisign.PrivateKey
	info, err := os.Stat(path)
	if err != nil {
		return private, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return private, fmt.Errorf("%s can be read by others: chmod 600", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return private, err
	}
	if !minisign.IsEncrypted(text) {
		return private, private.UnmarshalText(text)
	}
	if private, err = minisign.DecryptKey(os.Getenv(passwordVariable), text); err != nil {
		return private, fmt.Errorf("%w: %s has the password", err, passwordVariable)
	}
	return private, nil
}
