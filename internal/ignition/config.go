// Package ignition makes configurations of Ignition, by which Fedora CoreOS, RHEL CoreOS and Flatcar set themselves up
// at their first boot. It checks which seeds such a system can take. It reads and writes no file.
package ignition

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Version is that of the configurations that are made: the first that every Ignition 2 reads (coreos/ignition,
// docs/configuration-v3_0.md).
const Version = "3.0.0"

// Config is what a system is given. The zero value is none of each.
type Config struct {
	// User is the one that Keys are for.
	User string
	Keys []string
	// Merge is another configuration, which goes before this one.
	Merge string
	Files []File
	Units []Unit
}

// File is one that Ignition writes, in place of one that is there.
type File struct {
	Path string
	Mode int
	Data []byte
	// Apart: the content is not in Data. It is written between the two parts of the configuration, see Encode. At most one
	// file is.
	Apart bool
	// SHA512 is the digest of a content apart, in hex.
	SHA512 string
}

// Unit is one of systemd. Enabled units are started at each boot, by their section Install.
type Unit struct {
	Name, Contents string
	Enabled        bool
	// Dropins are contents by file name.
	Dropins []Dropin
}

// Dropin is a file that changes a unit.
type Dropin struct {
	Name     string `json:"name"`
	Contents string `json:"contents"`
}

// The form of a configuration (coreos/ignition, docs/configuration-v3_0.md). storage stands first, and in it the file
// apart, so that the first mark is that of the file.
type (
	document struct {
		Storage  *storage  `json:"storage,omitempty"`
		Ignition header    `json:"ignition"`
		Systemd  *systemd  `json:"systemd,omitempty"`
		Passwd   *accounts `json:"passwd,omitempty"`
	}
	header struct {
		Version string  `json:"version"`
		Config  *merges `json:"config,omitempty"`
	}
	merges struct {
		Merge []resource `json:"merge"`
	}
	resource struct {
		Source       string        `json:"source"`
		Compression  string        `json:"compression,omitempty"`
		Verification *verification `json:"verification,omitempty"`
	}
	verification struct {
		Hash string `json:"hash"`
	}
	storage struct {
		Files []file `json:"files"`
	}
	file struct {
		Path      string   `json:"path"`
		Mode      int      `json:"mode"`
		Overwrite bool     `json:"overwrite"`
		Contents  resource `json:"contents"`
	}
	systemd struct {
		Units []unit `json:"units"`
	}
	unit struct {
		Name     string   `json:"name"`
		Enabled  *bool    `json:"enabled,omitempty"`
		Contents string   `json:"contents,omitempty"`
		Dropins  []Dropin `json:"dropins,omitempty"`
	}
	accounts struct {
		Users []user `json:"users"`
	}
	user struct {
		Name string   `json:"name"`
		Keys []string `json:"sshAuthorizedKeys"`
	}
)

const (
	dataURL = "data:;base64,"
	// mark is where the content of the file apart goes. '@' is in no base64.
	mark = dataURL + "@apart@"
)

// Encode returns the configuration in two parts. Between them goes the content of the file apart, compressed by gzip
// and then in base64; without such a file the second part is empty.
func (c Config) Encode() (before, after []byte, err error) {
	d := document{Ignition: header{Version: Version}}
	if c.Merge != "" {
		d.Ignition.Config = &merges{Merge: []resource{{Source: inline([]byte(c.Merge))}}}
	}
	if len(c.Keys) > 0 {
		d.Passwd = &accounts{Users: []user{{Name: c.User, Keys: c.Keys}}}
	}
	var apart []file
	var files []file
	for _, f := range c.Files {
		entry := file{Path: f.Path, Mode: f.Mode, Overwrite: true, Contents: resource{Source: inline(f.Data)}}
		if !f.Apart {
			files = append(files, entry)
			continue
		}
		entry.Contents = resource{
			Source: mark, Compression: "gzip", Verification: &verification{Hash: "sha512-" + f.SHA512},
		}
		apart = append(apart, entry)
	}
	if files = append(apart, files...); len(files) > 0 {
		d.Storage = &storage{Files: files}
	}
	if len(c.Units) > 0 {
		d.Systemd = &systemd{}
	}
	for _, u := range c.Units {
		entry := unit{Name: u.Name, Contents: u.Contents, Dropins: u.Dropins}
		if u.Enabled {
			entry.Enabled = &u.Enabled
		}
		d.Systemd.Units = append(d.Systemd.Units, entry)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(d); err != nil {
		return nil, nil, fmt.Errorf("encode the configuration for Ignition: %w", err)
	}
	if len(apart) == 0 {
		return b.Bytes(), nil, nil
	}
	before, after, _ = bytes.Cut(b.Bytes(), []byte(mark))
	return append(bytes.Clone(before), dataURL...), after, nil
}

func inline(data []byte) string { return dataURL + base64.StdEncoding.EncodeToString(data) }

// ErrVersion is returned when a configuration is of a form that cannot be merged into one of Version.
var ErrVersion = errors.New("its ignition.version is not 3")

// Check reports whether the text is a configuration of Ignition: JSON with an ignition.version. It fails with
// ErrVersion where that is of another generation. Whether the rest is right, Ignition judges.
func Check(text string) (is bool, err error) {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return false, nil
	}
	var d struct {
		Ignition struct {
			Version *string `json:"version"`
		} `json:"ignition"`
	}
	if json.Unmarshal([]byte(text), &d) != nil || d.Ignition.Version == nil {
		return false, nil
	}
	if !strings.HasPrefix(*d.Ignition.Version, "3.") {
		return true, ErrVersion
	}
	return true, nil
}

// Fit reports whether the user-data is a configuration of Ignition, which no other system reads. unfit is why a system
// that Ignition sets up cannot take a seed of this user-data and network configuration; "" where it can. It repeats
// nothing of the seed.
func Fit(userData, network string) (is bool, unfit string) {
	is, err := Check(userData)
	switch {
	case err != nil:
		return is, "the user-data is a configuration of Ignition, and " + err.Error()
	case userData != "" && !is:
		return false, "the user-data is for cloud-init"
	}
	if _, err := ParseNetwork(network); err != nil {
		return is, err.Error()
	}
	return is, ""
}
