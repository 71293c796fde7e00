//go:build clusters

package clusters

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// doubleEnv makes this test program play kubeadm. It makes the calls of kubeadm and the kubelet to the API server, and
// changes the machine under this directory.
const doubleEnv = "INGOT_TEST_KUBEADM_ROOT"

func TestMain(m *testing.M) {
	if root := os.Getenv(doubleEnv); root != "" {
		if err := (double{root}).main(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}

// installDouble puts kubeadm into a root directory, and adds the cluster's CA, which it would find in cluster-info.
func installDouble(t *testing.T, root string, ca []byte) (path string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(root, "kubeadm")
	put(t, path, fmt.Sprintf("#!/bin/sh\n%s=%s exec %s \"$@\"\n", doubleEnv, root, self), 0o700)
	put(t, filepath.Join(root, "ca.crt"), string(ca), 0o600)
	return path
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

type double struct{ root string }

func (d double) main(args []string) error {
	f, err := os.OpenFile(filepath.Join(d.root, "calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, strings.Join(args[:min(2, len(args))], " ")); err != nil {
		return err
	}
	switch args[0] {
	case "version":
		fmt.Println("v1.33.0")
		return nil
	case "reset":
		return os.RemoveAll(filepath.Join(d.root, "etc/kubernetes"))
	}
	return d.join(args[2])
}

type joinFile struct {
	Discovery struct {
		BootstrapToken struct {
			Token             string
			APIServerEndpoint string   `yaml:"apiServerEndpoint"`
			CACertHashes      []string `yaml:"caCertHashes"`
		} `yaml:"bootstrapToken"`
	}
	NodeRegistration struct{ Name string } `yaml:"nodeRegistration"`
}

func (d double) join(file string) error {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		return fmt.Errorf("the file with the token: %v %w", info.Mode(), err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var cfg joinFile
	if err := yaml.Unmarshal(raw, &cfg); err != nil {
		return err
	}
	boot := cfg.Discovery.BootstrapToken
	fmt.Println("[preflight] joining with", boot.Token) // what no log may show
	if _, err := os.Stat(filepath.Join(d.root, "etc/kubernetes/kubelet.conf")); err == nil {
		return fmt.Errorf("kubelet.conf is there already")
	}
	ca, err := d.pinned(boot.CACertHashes)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(d.root, "etc/kubernetes/pki"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.root, "etc/kubernetes/pki/ca.crt"), ca, 0o600); err != nil {
		return err
	}
	if _, err := d.bootstrap("https://"+boot.APIServerEndpoint, boot.Token, cfg.NodeRegistration.Name, ca); err != nil {
		return err
	}
	conf := fmt.Sprintf("clusters:\n- name: c\n  cluster:\n    server: https://%s\n    certificate-authority-data: %s\n",
		boot.APIServerEndpoint, base64.StdEncoding.EncodeToString(ca))
	return os.WriteFile(filepath.Join(d.root, "etc/kubernetes/kubelet.conf"), []byte(conf), 0o600)
}

// pinned is the CA of cluster-info, held against the hashes.
func (d double) pinned(hashes []string) ([]byte, error) {
	ca, err := os.ReadFile(filepath.Join(d.root, "ca.crt"))
	if err != nil {
		return nil, err
	}
	have, err := pki.KeyHashes(ca)
	if err != nil || !slices.Contains(hashes, have[0]) {
		return nil, fmt.Errorf("cluster CA found in cluster-info is not pinned: %w", err)
	}
	return ca, nil
}

// bootstrap gets a certificate for the kubelet with the token (Kubernetes: "TLS bootstrapping").
func (d double) bootstrap(server, token, node string, ca []byte) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	c := bearer{server: server, token: token,
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
			MinVersion: tls.VersionTLS12}}}}
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	made, err := c.do(http.MethodPost, path, map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"generateName": "node-csr-"},
		"spec": map[string]any{
			"request":    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": []string{"digital signature", "client auth"},
		},
	})
	if err != nil {
		return nil, err
	}
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		now, err := c.do(http.MethodGet, path+"/"+made.Metadata.Name, nil)
		if err != nil || len(now.Status.Certificate) > 0 {
			return now.Status.Certificate, err
		}
	}
}

type bearer struct {
	server, token string
	http          *http.Client
}

type csr struct {
	Metadata struct{ Name string }
	Status   struct{ Certificate []byte }
}

func (b bearer) do(method, path string, body any) (out csr, err error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return out, err
	}
	req, err := http.NewRequestWithContext(context.Background(), method, b.server+path, bytes.NewReader(raw))
	if err != nil {
		return out, err
	}
	req.Header.Set("Authorization", "Bearer "+b.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.http.Do(req)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read to its end
	if raw, err = io.ReadAll(resp.Body); err != nil || resp.StatusCode > 299 {
		return out, fmt.Errorf("%s %s: %d %s %w", method, path, resp.StatusCode, raw, err)
	}
	return out, json.Unmarshal(raw, &out)
}
