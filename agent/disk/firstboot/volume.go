package firstboot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"unicode/utf16"

	"github.com/ingot-metal/ingot/internal/ignition"
)

// VolumeName is the label by which cloud-init finds a NoCloud seed on a file system of its own.
const VolumeName = "CIDATA"

// installScript adds the agent from the volume. cloud-init runs it as vendor-data, which user-data does not replace.
const installScript = `#!/bin/sh
set -e
dir=$(mktemp -d)
mount -o ro LABEL=` + VolumeName + ` "$dir"
trap 'umount "$dir"; rmdir "$dir"' EXIT
`

// Volume makes a FAT file system with the seed, and with an agent for cloud-init to install unless there is none. The
// reader returns size bytes.
func (c Config) Volume() (r io.ReadCloser, size int64, changes []Change, err error) {
	if is, _ := ignition.Check(c.Seed.UserData); is {
		return nil, 0, nil, notIgnition()
	}
	seed := c.SeedFiles()
	var files []File
	if !c.agentless() {
		files, seed["vendor-data"] = c.installed()
	}
	for _, name := range []string{"meta-data", "user-data", "vendor-data", "network-config"} {
		files = append(files, text(name, 0o600, seed[name]))
	}
	return volume(files)
}

// installed returns the agent's files on the volume, and the script that installs them.
func (c Config) installed() (files []File, script string) {
	script = installScript
	for i, f := range c.agent() {
		if f.Link != "" {
			script += fmt.Sprintf("mkdir -p /%s && ln -sf %s /%s\n", path.Dir(f.Path), f.Link, f.Path)
			continue
		}
		script += fmt.Sprintf("install -D -m %04o \"$dir/agent-%d\" /%s\n", f.Mode.Perm(), i, f.Path)
		f.Path = fmt.Sprintf("agent-%d", i)
		files = append(files, f)
	}
	return files, script + "systemctl daemon-reload\nsystemctl start --no-block ingot-agent.service\n"
}

// A FAT16 file system with clusters of 4 KiB (Microsoft, FAT: General Overview of On-Disk Format, 1.03).
const (
	sectorSize   = 512
	clusterSize  = 4096
	rootEntries  = 512
	entrySize    = 32
	minClusters  = 4085 + 100 // below, it is FAT12
	firstCluster = 2
	mediaDisk    = 0xf8
	endOfChain   = 0xffff
	longNamePart = 13 // characters in an entry
	attrVolume   = 0x08
	attrLongName = 0x0f
	attrArchive  = 0x20
	lastLongName = 0x40
)

// stored is a file with its place in the volume.
type stored struct {
	File
	size          int64
	first, chains int // clusters
}

func volume(files []File) (r io.ReadCloser, size int64, changes []Change, err error) {
	all := make([]stored, 0, len(files))
	next := firstCluster
	for _, f := range files {
		s := stored{File: f, size: int64(len(f.Data)), first: next}
		if f.Source != "" {
			info, err := os.Stat(f.Source)
			if err != nil {
				return nil, 0, nil, fmt.Errorf("add %s: %w", f.Path, err)
			}
			s.size = info.Size()
		}
		s.chains = int((s.size + clusterSize - 1) / clusterSize)
		next += s.chains
		all = append(all, s)
	}
	clusters := max(minClusters, next)
	fatBytes := (2*(clusters+firstCluster) + sectorSize - 1) / sectorSize * sectorSize
	head := sectorSize + 2*fatBytes + rootEntries*entrySize
	const mib = 1 << 20
	size = (int64(head) + int64(clusters)*clusterSize + mib - 1) / mib * mib
	b := make([]byte, head)
	putBootSector(b, size, fatBytes)
	fat := b[sectorSize : sectorSize+fatBytes]
	binary.LittleEndian.PutUint16(fat, 0xff00|mediaDisk)
	binary.LittleEndian.PutUint16(fat[2:], endOfChain)
	for _, s := range all {
		for i := range s.chains {
			to := s.first + i + 1
			if i == s.chains-1 {
				to = endOfChain
			}
			binary.LittleEndian.PutUint16(fat[2*(s.first+i):], uint16(to))
		}
	}
	copy(b[sectorSize+fatBytes:], fat)
	putDirectory(b[sectorSize+2*fatBytes:], all)
	v := &reader{}
	v.parts = append(v.parts, bytes.NewReader(b))
	written := int64(head)
	for _, s := range all {
		src, err := s.open()
		if err != nil {
			return nil, 0, nil, errors.Join(fmt.Errorf("add %s: %w", s.Path, err), v.Close())
		}
		v.closers = append(v.closers, src)
		padded := int64(s.chains) * clusterSize
		v.parts = append(v.parts, io.LimitReader(src, s.size), io.LimitReader(zeros{}, padded-s.size))
		written += padded
		c, err := s.digest()
		if err != nil {
			return nil, 0, nil, errors.Join(err, v.Close())
		}
		changes = append(changes, c)
	}
	v.parts = append(v.parts, io.LimitReader(zeros{}, size-written))
	v.Reader = io.MultiReader(v.parts...)
	return v, size, changes, nil
}

func (s stored) digest() (Change, error) {
	src, err := s.open()
	if err != nil {
		return Change{}, fmt.Errorf("add %s: %w", s.Path, err)
	}
	sum := sha256.New()
	n, err := io.Copy(sum, src)
	return Change{Path: VolumeName + ":/" + s.Path, Mode: fmt.Sprintf("%04o", s.Mode.Perm()), Size: n,
		SHA256: hex.EncodeToString(sum.Sum(nil))}, errors.Join(err, src.Close())
}

type reader struct {
	io.Reader
	parts   []io.Reader
	closers []io.Closer
}

// Close implements io.Closer.
func (r *reader) Close() error {
	var errs []error
	for _, c := range r.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func putBootSector(b []byte, size int64, fatBytes int) {
	le := binary.LittleEndian
	copy(b, "\xeb\x3c\x90MSDOS5.0")
	le.PutUint16(b[11:], sectorSize)
	b[13] = clusterSize / sectorSize
	le.PutUint16(b[14:], 1) // reserved sectors
	b[16] = 2               // copies of the table
	le.PutUint16(b[17:], rootEntries)
	b[21] = mediaDisk
	le.PutUint16(b[22:], uint16(fatBytes/sectorSize))
	le.PutUint16(b[24:], 63)  // sectors of a track
	le.PutUint16(b[26:], 255) // heads
	le.PutUint32(b[32:], uint32(size/sectorSize))
	b[36], b[38] = 0x80, 0x29
	copy(b[43:], "CIDATA     FAT16   ")
	b[510], b[511] = 0x55, 0xaa
}

// putDirectory writes the label and, for each file, its long name and an unused short one.
func putDirectory(dir []byte, all []stored) {
	copy(dir, "CIDATA     ")
	dir[11] = attrVolume
	at := entrySize
	for i, s := range all {
		short := fmt.Sprintf("FILE%04d   ", i)
		at += putLongName(dir[at:], s.Path, short)
		e := dir[at : at+entrySize]
		copy(e, short)
		e[11] = attrArchive
		if s.chains > 0 {
			binary.LittleEndian.PutUint16(e[26:], uint16(s.first))
		}
		binary.LittleEndian.PutUint32(e[28:], uint32(s.size))
		at += entrySize
	}
}

// putLongName writes the entries of a long name, the last part first, and returns how many bytes they are.
func putLongName(dir []byte, name, short string) int {
	var sum byte
	for _, c := range []byte(short) {
		sum = sum>>1 | sum<<7
		sum += c
	}
	units := utf16.Encode([]rune(name))
	parts := (len(units) + longNamePart - 1) / longNamePart
	if len(units)%longNamePart != 0 {
		units = append(units, 0)
	}
	for len(units) < parts*longNamePart {
		units = append(units, 0xffff)
	}
	places := [longNamePart]int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30}
	for i := range parts {
		part := parts - i
		e := dir[i*entrySize : (i+1)*entrySize]
		e[0] = byte(part)
		if i == 0 {
			e[0] |= lastLongName
		}
		e[11], e[13] = attrLongName, sum
		for j, place := range places {
			binary.LittleEndian.PutUint16(e[place:], units[(part-1)*longNamePart+j])
		}
	}
	return parts * entrySize
}
