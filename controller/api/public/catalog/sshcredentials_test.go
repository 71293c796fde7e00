package catalog_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func newKey(t *testing.T) any {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pemOf(t *testing.T, key any, passphrase string) []byte {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}

func sshKey(r *rig, ref, username string, key any) *pb.SSHCredentials {
	r.T.Helper()
	c, err := r.Scripts.SetSSHCredentials(r.T.Context(),
		&pb.SetSSHCredentialsRequest{CredentialsRef: ref, Username: username, PrivateKey: pemOf(r.T, key, "")})
	if err != nil {
		r.T.Fatalf("set credentials: %v", err)
	}
	return c
}

// TestKindsOfKeys: what a site agent can use is taken, with the public half shown; what is too weak or locked is not.
func TestKindsOfKeys(t *testing.T) {
	r := publictest.NewRig(t)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	strong, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for kind, key := range map[string]any{"ssh-ed25519": newKey(t), "ecdsa-sha2-nistp256": curve, "ssh-rsa": strong} {
		c := sshKey(r, "rack", "root", key)
		public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(c.GetPublicKey()))
		if err != nil || public.Type() != kind || c.GetUsername() != "root" {
			t.Errorf("%s: %v %v", kind, c, err)
		}
	}
	for what, key := range map[string][]byte{
		"weak": pemOf(t, weak, ""), "locked": pemOf(t, newKey(t), "secret"), "two lines": []byte("-----BEGIN\nx"),
		"long": bytes.Repeat([]byte("x"), 65<<10),
	} {
		_, err := r.Scripts.SetSSHCredentials(t.Context(),
			&pb.SetSSHCredentialsRequest{CredentialsRef: "rack", Username: "root", PrivateKey: key})
		publictest.Wants(t, err, invalid, "INVALID_FIELD", "private_key")
		if strings.Contains(err.Error(), string(key)) {
			t.Errorf("%s: the refusal holds the key", what)
		}
	}
}

// TestPrivateKeysStayInside: no answer, no audit row and no table has one; names and versions can be read.
func TestPrivateKeysStayInside(t *testing.T) {
	r := publictest.NewRig(t)
	key := newKey(t)
	var shown []string
	for version := range 2 {
		c := sshKey(r, "rack", "administrator", key)
		if c.GetVersion() != int64(version+1) || c.GetUpdatedAt() == nil {
			t.Errorf("%v", c)
		}
		shown = append(shown, c.String())
	}
	for _, ref := range []string{"a", "b"} {
		sshKey(r, ref, "administrator", newKey(t))
	}
	seen := ""
	publictest.Walk(t, func(token string) (string, error) {
		got, err := r.Scripts.ListSSHCredentials(t.Context(), &pb.ListSSHCredentialsRequest{PageSize: 2, PageToken: token})
		for _, c := range got.GetCredentials() {
			seen += c.GetCredentialsRef() + " "
			shown = append(shown, c.String())
		}
		return got.GetNextPageToken(), err
	})
	if seen != "a b rack " {
		t.Errorf("listed %s", seen)
	}
	stored := storetest.Dump(t, r.Store, "ssh_credentials", "audit_log")
	body := strings.Split(string(pemOf(t, key, "")), "\n")[2]
	for _, s := range append(shown, stored) {
		if strings.Contains(s, body) || strings.Contains(s, "PRIVATE KEY") {
			t.Errorf("the private key is in %.300s", s)
		}
	}
	if strings.Contains(stored, "administrator") {
		t.Error("the user name is in the database, unsealed")
	}
	r.Verbs("rack", "SET_SSH_CREDENTIALS", "SET_SSH_CREDENTIALS")
}

// TestCredentialsInUse stay; and where the key that sealed them is lost, the list says so by leaving the user out.
func TestCredentialsInUse(t *testing.T) {
	r := publictest.NewRig(t)
	sshKey(r, "rack", "root", newKey(t))
	r.Register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{SshCredentialsRef: "rack"}})
	_, err := r.Scripts.DeleteSSHCredentials(t.Context(), &pb.DeleteSSHCredentialsRequest{CredentialsRef: "rack"})
	publictest.Wants(t, err, precondition, "CREDENTIALS_IN_USE", "")
	other, err := secret.New(bytes.Repeat([]byte{9}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	late := pb.NewScriptServiceClient(
		publictest.Serve(t, service.Config{Engine: r.Engine, Secrets: other}, r.Store))
	got, err := late.ListSSHCredentials(t.Context(), &pb.ListSSHCredentialsRequest{})
	if err != nil || len(got.GetCredentials()) != 1 || got.GetCredentials()[0].GetUsername() != "" ||
		got.GetCredentials()[0].GetPublicKey() != "" {
		t.Errorf("%v %v", got, err)
	}
	if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "m-1"}); err != nil {
		t.Fatal(err)
	}
	gone, err := r.Scripts.DeleteSSHCredentials(t.Context(), &pb.DeleteSSHCredentialsRequest{CredentialsRef: "rack"})
	if err != nil || gone.GetUsername() != "root" {
		t.Errorf("%v %v", gone, err)
	}
}
