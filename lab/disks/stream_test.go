package disks

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
)

// source is an image and a server that serves it, well or badly.
type source struct {
	raw    []byte
	table  table
	file   []byte
	format string
	fault  string // "": none
	good   bool   // it can be installed on a disk with sectors of table.sector

	mu       sync.Mutex
	requests int
	other    []byte // the bytes that are served after a break
	breakAt  int
}

// drawSource draws an image and how it comes.
func drawSource(r *rand.Rand, sector int) *source {
	size := 2<<20 + r.Int64N(6)<<20 + r.Int64N(2048)*512
	size = size / int64(sector) * int64(sector)
	s := &source{good: true, format: one(r, "raw", "raw.zst", "raw.zst")}
	s.raw, s.table = randomImage(r, size, sector)
	switch r.IntN(14) {
	case 0: // MBR alone, as images of Windows 7 and of boards have
		clear(s.raw[512 : 34*512])
		clear(s.raw[len(s.raw)-34*4096:])
		s.raw[446+4], s.fault, s.good = 0x83, "no table", false
	case 1:
		s.raw, s.table = randomImage(r, size/4096*4096, 4096+512-sector)
		s.fault, s.good = "other sectors", false
	case 2:
		s.table.parts = append(s.table.parts, part{name: "INGOT-STATE", id: guid(r), off: 1 << 20, len: 64 << 10})
		s.table.build(int64(len(s.raw)), func(b []byte, off int64) { copy(s.raw[off:], b) })
		s.fault, s.good = "golden image", false
	}
	s.file = s.raw
	if s.format == "raw.zst" {
		s.file = pack(s.raw)
	}
	return s
}

func pack(b []byte) []byte {
	out, err := disktest.Pack(b)
	if err != nil {
		panic(err)
	}
	return out
}

// spoil draws what the server does.
func (s *source) spoil(r *rand.Rand) {
	at := r.IntN(len(s.file))
	switch r.IntN(8) {
	case 0:
		s.file, s.fault = s.file[:at], "short"
	case 1:
		s.file = bytes.Clone(s.file)
		s.file[at] ^= 1 << r.IntN(8)
		s.fault = "corrupt"
	case 2:
		other, _ := randomImage(r, int64(len(s.raw)), s.table.sector)
		s.fault, s.file = "substituted", other
		if s.format == "raw.zst" {
			s.file = pack(other)
		}
	case 3:
		s.file, s.fault = append(bytes.Clone(s.file), make([]byte, 1+r.IntN(4096))...), "long"
	case 4:
		s.breakAt, s.other = at, s.file // a connection that breaks, and goes on well
		return
	case 5:
		s.other = bytes.Clone(s.file)
		fill(r, s.other[at:])
		s.breakAt, s.fault = at, "substituted after a break"
	case 6:
		// An unconverted qcow2 (docs/interop/qcow2.txt of QEMU: the header).
		s.file = append([]byte("QFI\xfb\x00\x00\x00\x03"), s.file...)
		s.fault = "qcow2"
		if s.format = one(r, "qcow2", "raw", "raw.zst"); s.format == "raw.zst" {
			s.file = pack(s.file)
		}
	case 7:
		z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			panic(err)
		}
		s.file, s.format = z.EncodeAll(s.raw[len(s.raw)/2:], z.EncodeAll(s.raw[:len(s.raw)/2], nil)), "raw.zst" // two frames
		return
	}
	s.good = false
}

// RoundTrip implements http.RoundTripper.
func (s *source) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	file, from, code := s.file, 0, http.StatusOK
	if s.requests > 1 && s.other != nil {
		file = s.other
	}
	if _, err := fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &from); err == nil {
		code = http.StatusPartialContent
	}
	from = min(from, len(file))
	var body io.Reader = bytes.NewReader(file[from:])
	if s.other != nil && s.requests == 1 {
		body = io.MultiReader(bytes.NewReader(file[from:max(s.breakAt, from)]), broken{})
	}
	h := http.Header{}
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(file)-1, len(file)))
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Header: h, ContentLength: int64(len(file) - from),
		Body: io.NopCloser(body), Request: req,
	}, nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

// order is the action that installs the image.
func (s *source) order(r rule, protected []rule) *fleetv1.RepaveAction {
	sum := sha256.Sum256(s.raw)
	a := &fleetv1.RepaveAction{
		ImageRef: "image", ImageUrl: "http://site/blob", Sha256Raw: hex.EncodeToString(sum[:]), RawSize: int64(len(s.raw)),
		Format:   s.format,
		FileSize: int64(len(s.file)), DiskRule: r.String(),
	}
	for _, p := range protected {
		a.ProtectedDisks = append(a.ProtectedDisks, p.String())
	}
	return a
}

func (s *source) digest() string {
	sum := sha256.Sum256(s.raw)
	return "sha256:" + strings.ToLower(hex.EncodeToString(sum[:]))
}
