package admin_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/catalog/image"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// upload sends a file in pieces of 1000 bytes.
func upload(r *rig, im *pb.Image, file []byte) (*pb.Image, error) {
	r.T.Helper()
	s, err := r.Admin.UploadImage(r.T.Context())
	if err != nil {
		r.T.Fatal(err)
	}
	send := func(m *pb.UploadImageRequest) {
		// io.EOF says that the server has answered already; the answer comes below.
		if err := s.Send(m); err != nil && !errors.Is(err, io.EOF) {
			r.T.Fatal(err)
		}
	}
	send(&pb.UploadImageRequest{Part: &pb.UploadImageRequest_Image{Image: im}})
	for piece := range slices.Chunk(file, 1000) {
		send(&pb.UploadImageRequest{Part: &pb.UploadImageRequest_Data{Data: piece}})
	}
	return s.CloseAndRecv()
}

func TestUploadAndRemoveAnImage(t *testing.T) {
	r := publictest.NewRig(t)
	file := bytes.Repeat([]byte("kernel"), 5000)
	copy(file[0x38:], "ARM\x64")
	im, err := upload(r, &pb.Image{ImageRef: "k", Kind: "installer-kernel", Arch: "arm64", Sha256File: digestOf(file)},
		file)
	if err != nil {
		t.Fatal(err)
	}
	if im.GetSha256File() != digestOf(file) || im.GetFileSizeBytes() != 30000 || im.GetFormat() != "raw" ||
		im.GetUrl() != "" || im.GetCreatedAt() == nil {
		t.Errorf("%v", im)
	}
	if again, err := upload(r, &pb.Image{ImageRef: "k", Kind: "installer-kernel", Arch: "arm64"}, file); err != nil ||
		again.GetCreatedAt().AsTime() != im.GetCreatedAt().AsTime() {
		t.Errorf("%v, %v", again, err)
	}
	if got, err := r.Admin.GetImage(t.Context(), &pb.GetImageRequest{ImageRef: "k"}); err != nil ||
		got.GetKind() != "installer-kernel" {
		t.Errorf("%v, %v", got, err)
	}
	entries, err := r.Admin.ListAuditLog(t.Context(), &pb.ListAuditLogRequest{TargetId: "k"})
	if err != nil || len(entries.GetEntries()) != 1 || entries.GetEntries()[0].GetActor() != "tester" {
		t.Errorf("audit: %v, %v", entries, err)
	}
	if _, err := r.Admin.RemoveImage(t.Context(), &pb.RemoveImageRequest{ImageRef: "k"}); err != nil {
		t.Fatal(err)
	}
	if left, err := r.Blobs.List(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("blobs left: %v, %v", left, err)
	}
	_, err = r.Admin.RemoveImage(t.Context(), &pb.RemoveImageRequest{ImageRef: "k"})
	publictest.Wants(t, err, notFound, "IMAGE_NOT_FOUND", "image_ref")
}

func TestAddAnImageFromAURL(t *testing.T) {
	file := append([]byte("070701"), bytes.Repeat([]byte("initrd"), 5000)...)
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		calls++
		if q.URL.RawQuery != "signature=abc" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write(file)
	}))
	defer srv.Close()
	st := storetest.New(t)
	r := publictest.NewRigOn(t, st, func(c *service.Config) {
		blobs, err := blob.Open(blob.Config{Path: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		c.Images = image.New(image.Config{
			Blobs: blobs, Store: st.Catalog, Logger: testkit.Logger(t),
			Addresses: webhook.Policy{AllowLoopback: true},
		})
	})
	add := func(url, sum string) (*pb.Image, error) {
		return r.Admin.AddImage(t.Context(), &pb.AddImageRequest{Image: &pb.Image{
			ImageRef: "i", Kind: "installer-initrd", Url: url, Sha256File: sum,
		}})
	}
	_, err := add(srv.URL+"/x", "")
	publictest.Wants(t, err, invalid, "IMAGE_URL_REFUSED", "image.url")
	_, err = add(srv.URL+"/x", digestOf(file))
	publictest.Wants(t, err, precondition, "IMAGE_UNAVAILABLE", "")
	_, err = add(srv.URL+"/x?signature=abc", digestOf([]byte("other")))
	publictest.Wants(t, err, precondition, "IMAGE_DIGEST_MISMATCH", "image.sha256_file")
	im, err := add(srv.URL+"/x?signature=abc", digestOf(file))
	if err != nil || im.GetUrl() != srv.URL+"/x" {
		t.Fatalf("%v, %v: the query must not be kept", im, err)
	}
	before := calls
	if _, err := add(srv.URL+"/x?signature=abc", digestOf(file)); err != nil || calls != before {
		t.Errorf("%v, %d calls: a known digest needs no download", err, calls-before)
	}
	_, err = add(srv.URL+"/x?signature=abc", digestOf([]byte("other")))
	publictest.Wants(t, err, exists, "IMAGE_EXISTS", "image.image_ref")
}

func TestImagesArePagedAndFiltered(t *testing.T) {
	r := publictest.NewRig(t)
	for i, ref := range []string{"a", "b", "c"} {
		kind := []string{"installer-kernel", "installer-initrd"}[i%2]
		file := append(make([]byte, 0x38), "ARM\x64"+ref...) // a kernel
		if kind == "installer-initrd" {
			file = []byte("070701" + ref)
		}
		if _, err := upload(r, &pb.Image{ImageRef: ref, Kind: kind}, file); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	token := ""
	for {
		p, err := r.Admin.ListImages(t.Context(), &pb.ListImagesRequest{PageSize: 1, PageToken: token})
		if err != nil || len(p.GetImages()) != 1 {
			t.Fatalf("%v, %v", p, err)
		}
		got = append(got, p.GetImages()[0].GetImageRef())
		if token = p.GetNextPageToken(); token == "" {
			break
		}
	}
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("walked %v", got)
	}
	p, err := r.Admin.ListImages(t.Context(), &pb.ListImagesRequest{Filter: "kind=installer-kernel,arch=amd64"})
	if err != nil || len(p.GetImages()) != 2 {
		t.Errorf("%v, %v", p, err)
	}
	_, err = r.Admin.ListImages(t.Context(), &pb.ListImagesRequest{Filter: "kind=disk"})
	publictest.Wants(t, err, invalid, "INVALID_FILTER", "filter")
}

func TestUploadsThatAreNone(t *testing.T) {
	r := publictest.NewRig(t, func(c *service.Config) { c.SendTimeout = 200e6 })
	for name, c := range map[string]struct {
		im     *pb.Image
		file   []byte
		reason string
		field  string
	}{
		"no name":  {&pb.Image{}, nil, "INVALID_FIELD", "image.image_ref"},
		"url":      {&pb.Image{ImageRef: "x", Url: "http://x/"}, nil, "INVALID_FIELD", "image.url"},
		"kind":     {&pb.Image{ImageRef: "x", Kind: "disk"}, nil, "INVALID_FIELD", "image.kind"},
		"digest":   {&pb.Image{ImageRef: "x", Sha256Raw: "AB"}, nil, "INVALID_FIELD", "image.sha256_raw"},
		"format":   {&pb.Image{ImageRef: "x", Kind: "installer-uki", Format: "qcow2"}, nil, "INVALID_FIELD", "image.format"},
		"empty":    {&pb.Image{ImageRef: "x"}, nil, "IMAGE_UNAVAILABLE", ""},
		"short":    {&pb.Image{ImageRef: "x", FileSizeBytes: 4000}, make([]byte, 3999), "IMAGE_UNAVAILABLE", ""},
		"long":     {&pb.Image{ImageRef: "x", FileSizeBytes: 4000}, make([]byte, 9000), "IMAGE_UNAVAILABLE", ""},
		"no table": {&pb.Image{ImageRef: "x"}, make([]byte, 4096), "IMAGE_UNSUPPORTED", ""},
	} {
		_, err := upload(r, c.im, c.file)
		kind := precondition
		if c.reason == "INVALID_FIELD" {
			kind = invalid
		}
		t.Run(name, func(t *testing.T) { publictest.Wants(t, err, kind, c.reason, c.field) })
	}
	s, err := r.Admin.UploadImage(t.Context())
	if err == nil {
		err = s.Send(&pb.UploadImageRequest{Part: &pb.UploadImageRequest_Data{Data: []byte("first")}})
	}
	if err != nil {
		t.Fatal(err)
	}
	publictest.Wants(t, s.RecvMsg(&pb.Image{}), invalid, "INVALID_FIELD", "image")
	s, err = r.Admin.UploadImage(t.Context())
	if err == nil {
		err = s.Send(&pb.UploadImageRequest{Part: &pb.UploadImageRequest_Image{Image: &pb.Image{ImageRef: "x"}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	err = s.RecvMsg(&pb.Image{}) // nothing more is sent: the server must give up by itself
	publictest.Wants(t, err, precondition, "IMAGE_UNAVAILABLE", "")
	if left, err := r.Blobs.List(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("blobs left: %v, %v", left, err)
	}
}
