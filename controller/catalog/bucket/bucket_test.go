package bucket

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestPartSize(t *testing.T) {
	for size, want := range map[int64]int64{
		leastPart + 1: leastPart, 64 << 30: leastPart, 100 << 30: 11 << 20, 4 << 40: 420 << 20,
	} {
		got := partSize(size)
		if got != want || (size+got-1)/got > mostParts {
			t.Errorf("%d bytes go in parts of %d, want %d", size, got, want)
		}
	}
}

// TestOtherBytesThanAskedForAreNotBelieved: RFC 9110, 14.4 defines Content-Range.
func TestOtherBytesThanAskedForAreNotBelieved(t *testing.T) {
	for _, c := range []struct {
		length int64
		header string
		offset int64
		want   int64
	}{
		{10, "", 0, 10}, {6, "bytes 4-9/10", 4, 10}, {10, "bytes 0-9/10", 0, 10},
		{10, "", 4, -1}, {6, "bytes 3-8/10", 4, -1}, {5, "bytes 4-8/10", 4, -1}, {6, "bytes 4-9/*", 4, -1}, {6, "x", 4, -1},
	} {
		got, err := wholeSize(c.length, c.header, c.offset)
		if c.want < 0 && !failure.HasReason(err, "IMAGE_STORE_UNAVAILABLE") || c.want >= 0 && (err != nil || got != c.want) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}

func TestWhatAnAnswerMeans(t *testing.T) {
	for code, want := range map[string]string{
		"NoSuchKey": "BLOB_NOT_FOUND", "NoSuchBucket": "IMAGE_STORE_REFUSED", "AccessDenied": "IMAGE_STORE_REFUSED",
		"QuotaExceeded": "IMAGE_STORE_FULL", "SlowDown": "IMAGE_STORE_UNAVAILABLE", "InternalError": "IMAGE_STORE_UNAVAILABLE",
	} {
		if err := failed(t.Context(), "read", "", minio.ErrorResponse{Code: code}); !failure.HasReason(err, want) {
			t.Errorf("%s: %v", code, err)
		}
	}
	full := minio.ErrorResponse{StatusCode: http.StatusInsufficientStorage}
	err := failed(t.Context(), "write to", "", full)
	if !failure.HasReason(err, "IMAGE_STORE_FULL") || failure.Retryable(err) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := failed(ctx, "read", "", errors.New("x")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials")
	for text, want := range map[string]string{
		"[default]\n# mine\naws_access_key_id = A\naws_secret_access_key=b=\n": "",
		"aws_access_key_id=A\n": "lacks", "password=x\n": "line 1 is none of",
		"aws_access_key_id=A\n[other]\naws_access_key_id=B\n": "line 3 gives a value again",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := readKeys(path)
		if want == "" && (err != nil || v.AccessKeyID != "A" || v.SecretAccessKey != "b=") ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readKeys(path); err == nil || !strings.Contains(err.Error(), "make it 0600") {
		t.Errorf("mode 0644: %v", err)
	}
}
