//go:build bucket

package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/s3"
)

func TestMain(m *testing.M) { rig.Main(m) }

// fleet is two controllers on one database and one bucket, each with an images_dir of its own.
type fleet struct {
	t      *testing.T
	server *s3.Server
	one    *harness.ControllerProcess
	two    *harness.ControllerProcess
	// cert is that of a site agent.
	cert tls.Certificate
}

func start(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, server: s3.Start(t, s3.Options{TLS: true})}
	f.one = harness.NewControllerProcessWith(t, fmt.Sprintf(
		"images: {bucket: {name: %s, endpoint: %q, prefix: ingot/, credentials_file: %q, ca_file: %q}}",
		f.server.Bucket, f.server.URL, f.server.Credentials(), f.server.CAFile))
	f.one.Start("")
	f.two = f.one.Beside(t)
	f.two.Start("")
	f.enrol()
	return f
}

func (f *fleet) dial(c *harness.ControllerProcess, address string, certs ...tls.Certificate) *grpc.ClientConn {
	f.t.Helper()
	raw, err := os.ReadFile(c.CAFile())
	if err != nil {
		f.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(raw)
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithDisableRetry(), grpc.WithTransportCredentials(
		credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: certs})))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	return conn
}

// enrol makes the certificate of a site agent, as the agent does.
func (f *fleet) enrol() {
	f.t.Helper()
	token := f.one.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{
		Role: baremetalv1.AgentRole_AGENT_ROLE_SITE, Site: "default",
	})
	bundle, err := pki.ParseBundle(token)
	if err != nil {
		f.t.Fatal(err)
	}
	key, err := pki.NewKey()
	if err != nil {
		f.t.Fatal(err)
	}
	csr, err := pki.NewCSR(key, "")
	if err != nil {
		f.t.Fatal(err)
	}
	enrolment := enrollv1.NewEnrollmentServiceClient(f.dial(f.one, f.one.Addresses().Enrolment))
	got, err := enrolment.Enroll(f.t.Context(),
		&enrollv1.EnrollRequest{TokenId: bundle.TokenID, TokenSecret: bundle.Secret, Csr: csr})
	if err != nil {
		f.t.Fatal(err)
	}
	chain, err := pki.DecodeCerts(got.GetCertificateChainPem())
	if err != nil {
		f.t.Fatal(err)
	}
	f.cert = tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, c := range chain {
		f.cert.Certificate = append(f.cert.Certificate, c.Raw)
	}
}

// fetch reads a blob from an offset on, as a site agent does. between is called after each message.
func (f *fleet) fetch(c *harness.ControllerProcess, sum string, offset int64, between func()) (got []byte, err error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	client := fleetv1.NewAgentServiceClient(f.dial(c, c.Addresses().Fleet, f.cert))
	stream, err := client.FetchBlob(ctx, &fleetv1.FetchBlobRequest{Sha256: sum, Offset: offset})
	if err != nil {
		return nil, err
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, failure.From(err)
		}
		got = append(got, m.GetData()...)
		between()
	}
}

func nothing() {}

// wantServed fails unless both controllers serve exactly these bytes.
func (f *fleet) wantServed(content []byte) {
	f.t.Helper()
	for _, c := range []*harness.ControllerProcess{f.one, f.two} {
		if got, err := f.fetch(c, digestOf(content), 0, nothing); err != nil || !bytes.Equal(got, content) {
			f.t.Errorf("%d bytes, %v", len(got), err)
		}
	}
}

// wantObjects fails unless the bucket holds the files with these bytes and nothing else.
func (f *fleet) wantObjects(contents ...[]byte) {
	f.t.Helper()
	var want []string
	for _, content := range contents {
		want = append(want, "ingot/"+digestOf(content))
	}
	slices.Sort(want)
	if got := f.server.Objects(); !slices.Equal(got, want) {
		f.t.Errorf("objects %v, want %v", got, want)
	}
	for _, name := range f.server.Objects() {
		raw, err := os.ReadFile(filepath.Join(f.server.Dir, name))
		if err != nil || "ingot/"+digestOf(raw) != name {
			f.t.Errorf("%s has other bytes (%v)", name, err)
		}
	}
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// disk is an image of a size, and its file.
func disk(t *testing.T, seed byte, size int) (content []byte, path string) {
	t.Helper()
	content = rig.WholeDisk(size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(content[1<<20 : size-1<<20]) // never fails
	path = filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return content, path
}

const large = 28 << 20 // four parts

func (f *fleet) add(c *harness.ControllerProcess, name, path string) {
	f.t.Helper()
	if code, out := c.Ingot("image", "add", name, path); code != 0 {
		f.t.Fatalf("image add %s: %d\n%s", name, code, out)
	}
}

// TestTwoControllersAndOneBucket: what one takes in, the other serves and removes; a backup and doctor know the bucket.
func TestTwoControllersAndOneBucket(t *testing.T) {
	f := start(t)
	first, path := disk(t, 1, large)
	f.add(f.one, "first", path)
	second, path2 := disk(t, 2, 4<<20)
	f.add(f.two, "second", path2)
	f.add(f.two, "again", path2)
	f.wantServed(first)
	f.wantServed(second)
	f.wantObjects(first, second)
	for _, at := range []int64{1, large / 2, large} {
		if got, err := f.fetch(f.two, digestOf(first), at, nothing); err != nil || !bytes.Equal(got, first[at:]) {
			t.Errorf("from %d: %d bytes, %v", at, len(got), err)
		}
	}
	if out, _ := f.two.Run("doctor"); !strings.Contains(out, "can be listed, read, written and removed from") {
		t.Errorf("doctor:\n%s", out)
	}
	file := filepath.Join(t.TempDir(), "backup.tar.zst")
	out, err := f.two.Run("backup", "--images", "--out", file)
	if err != nil || !strings.Contains(out, "2 of them of the image store") {
		t.Errorf("backup: %v\n%s", err, out)
	}
	for _, ref := range []string{"first", "second"} {
		if code, out := f.two.Ingot("image", "remove", ref); code != 0 {
			t.Errorf("image remove: %d\n%s", code, out)
		}
	}
	f.wantObjects(second) // still named by "again"
	_, err = f.fetch(f.one, digestOf(first), 0, nothing)
	if !failure.HasReason(err, "BLOB_NOT_FOUND") {
		t.Errorf("%v", err)
	}
}

// TestBothAddAndRemoveAtOnce: few names and one file, so that what one adds meets what the other removes.
func TestBothAddAndRemoveAtOnce(t *testing.T) {
	f := start(t)
	content, path := disk(t, 1, 12<<20)
	kept, keptPath := disk(t, 2, 4<<20)
	f.add(f.one, "kept", keptPath)
	g, _ := task.New(t.Context())
	for i, c := range []*harness.ControllerProcess{f.one, f.two} {
		g.Go("caller", func(context.Context) error {
			for range 8 {
				if code, out := c.Ingot("image", "add", fmt.Sprint("image-", i), path); code != 0 {
					return fmt.Errorf("add: %s", out)
				}
				if code, out := c.Ingot("image", "remove", fmt.Sprint("image-", i)); code != 0 {
					return fmt.Errorf("remove: %s", out)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	f.wantObjects(kept)
	f.add(f.two, "last", path)
	f.wantServed(content)
}

// TestKilledAmidAnIngest: kill -9 on the way of an image. No part of it is ever served, the next start removes all of
// it, and the same call then completes it.
func TestKilledAmidAnIngest(t *testing.T) {
	f := start(t)
	kept, keptPath := disk(t, 2, 4<<20)
	f.add(f.one, "kept", keptPath)
	for i, point := range []string{"bucket.before-part=kill@1", "bucket.before-part=kill@3", "bucket.before-complete=kill",
		"bucket.after-complete=kill", "blob.after-place=kill"} {
		content, path := disk(t, byte(10+i), large)
		name := fmt.Sprint("crashed-", i)
		f.one.Process.Kill()
		f.one.Start(point)
		if code, out := f.one.Ingot("image", "add", name, path); code == 0 {
			t.Fatalf("%s: nothing was killed\n%s", point, out)
		}
		<-f.one.Process.Gone()
		if code, out := f.two.Ingot("image", "get", name); code == 0 {
			t.Errorf("%s: there is an entry\n%s", point, out)
		}
		f.one.Start("")
		f.wantObjects(kept)
		f.add(f.two, name, path)
		f.wantServed(content)
		if code, out := f.one.Ingot("image", "remove", name); code != 0 {
			t.Errorf("image remove: %d\n%s", code, out)
		}
		f.wantObjects(kept)
	}
}

// TestTheServiceDies: during a serve, during an ingest, and at a controller's start.
func TestTheServiceDies(t *testing.T) {
	f := start(t)
	content, path := disk(t, 1, 48<<20)
	f.add(f.one, "image", path)
	messages := 0
	got, err := f.fetch(f.two, digestOf(content), 0, func() {
		if messages++; messages == 4 {
			f.server.Kill()
		}
	})
	if !failure.HasReason(err, "IMAGE_STORE_UNAVAILABLE") || !failure.Retryable(err) {
		t.Errorf("during a serve: %v", err)
	}
	if len(got) >= len(content) || !bytes.Equal(got, content[:len(got)]) {
		t.Errorf("%d bytes were served, some of them wrong", len(got))
	}
	other, otherPath := disk(t, 2, large)
	code, out := f.one.Ingot("image", "add", "other", otherPath)
	if code == 0 || !strings.Contains(out, "IMAGE_STORE_UNAVAILABLE") {
		t.Errorf("an ingest without the service: %d\n%s", code, out)
	}
	f.two.Process.Kill()
	f.two.Start("") // it gets ready
	_, err = f.fetch(f.two, digestOf(content), 0, nothing)
	if !failure.HasReason(err, "IMAGE_STORE_UNAVAILABLE") {
		t.Errorf("a serve without the service: %v", err)
	}
	f.server.Again()
	rest, err := f.fetch(f.two, digestOf(content), int64(len(got)), nothing)
	if err != nil || !bytes.Equal(append(got, rest...), content) {
		t.Errorf("the rest: %d bytes, %v", len(rest), err)
	}

	// The server is killed amid an upload, and started at once or later: the call succeeds or fails with a typed error.
	for _, name := range []string{"at-once", "later"} {
		ended := make(chan string, 1)
		task.Background("ingest", func() {
			code, out := f.one.Ingot("image", "add", name, otherPath)
			if code == 0 {
				out = ""
			}
			ended <- out
		})
		var out string
		testkit.Eventually(t, time.Minute, func() bool {
			return f.server.Uploading() || len(ended) > 0
		}, "nothing is uploaded")
		f.server.Kill()
		if name == "later" {
			out = <-ended
		}
		f.server.Again()
		if name == "at-once" {
			out = <-ended
		}
		if out != "" && !strings.Contains(out, "IMAGE_STORE_UNAVAILABLE") {
			t.Errorf("an ingest whose service dies: %s", out)
		}
	}
	f.add(f.one, "other", otherPath)
	f.wantServed(other)
	f.wantObjects(content, other)
}
