package jsonscan

import (
	"bytes"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Object reads a JSON object whose values are strings, or arrays of strings, as Postgres writes jsonb. It is for data
// that is read a million times: labels and specs. Anything else, an escape among them, is left to a real decoder: then
// it returns false, and its calls of value so far do not count.
func Object(b []byte, value func(key, text []byte) bool) bool {
	s := scanner{b}
	if !s.take('{') {
		return false
	}
	if s.take('}') {
		return len(s.b) == 0
	}
	for {
		key, ok := s.text()
		if !ok || !s.take(':') || !s.values(key, value) {
			return false
		}
		if s.take('}') {
			return len(s.b) == 0
		}
		if !s.take(',') {
			return false
		}
	}
}

// scanner is the rest of a document.
type scanner struct{ b []byte }

// take skips spaces, and c if it is next.
func (s *scanner) take(c byte) bool {
	for len(s.b) > 0 && s.b[0] == ' ' {
		s.b = s.b[1:]
	}
	if len(s.b) == 0 || s.b[0] != c {
		return false
	}
	s.b = s.b[1:]
	return true
}

// text reads a string without escapes.
func (s *scanner) text() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	end := bytes.IndexByte(s.b, '"')
	if end < 0 || bytes.IndexByte(s.b[:end], '\\') >= 0 {
		return nil, false
	}
	out := s.b[:end]
	s.b = s.b[end+1:]
	return out, true
}

// values reads one string, or an array of them.
func (s *scanner) values(key []byte, value func(key, text []byte) bool) bool {
	if !s.take('[') {
		text, ok := s.text()
		return ok && value(key, text)
	}
	if s.take(']') {
		return true
	}
	for {
		text, ok := s.text()
		if !ok || !value(key, text) {
			return false
		}
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// StringMap reads an object of strings.
func StringMap(b []byte) (map[string]string, bool) {
	out := make(map[string]string, 8)
	ok := Object(b, func(key, text []byte) bool {
		if _, twice := out[string(key)]; twice { // an array is no string
			return false
		}
		out[string(key)] = string(text)
		return true
	})
	return out, ok && !bytes.ContainsRune(b, '[')
}

// SpecFields set the fields of a spec by their names in the database.
var SpecFields = map[string]func(*baremetalv1.MachineSpec, string){
	"ssh_endpoint":        func(s *baremetalv1.MachineSpec, v string) { s.SshEndpoint = v },
	"bmc_endpoint":        func(s *baremetalv1.MachineSpec, v string) { s.BmcEndpoint = v },
	"target_cluster_ref":  func(s *baremetalv1.MachineSpec, v string) { s.TargetClusterRef = v },
	"mac_addresses":       func(s *baremetalv1.MachineSpec, v string) { s.MacAddresses = append(s.MacAddresses, v) },
	"provider":            func(s *baremetalv1.MachineSpec, v string) { s.Provider = v },
	"serial":              func(s *baremetalv1.MachineSpec, v string) { s.Serial = v },
	"rack":                func(s *baremetalv1.MachineSpec, v string) { s.Rack = v },
	"location":            func(s *baremetalv1.MachineSpec, v string) { s.Location = v },
	"region":              func(s *baremetalv1.MachineSpec, v string) { s.Region = v },
	"customer_id":         func(s *baremetalv1.MachineSpec, v string) { s.CustomerId = v },
	"external_id":         func(s *baremetalv1.MachineSpec, v string) { s.ExternalId = v },
	"group":               func(s *baremetalv1.MachineSpec, v string) { s.Group = v },
	"site":                func(s *baremetalv1.MachineSpec, v string) { s.Site = v },
	"default_image_ref":   func(s *baremetalv1.MachineSpec, v string) { s.DefaultImageRef = v },
	"bmc_credentials_ref": func(s *baremetalv1.MachineSpec, v string) { s.BmcCredentialsRef = v },
	"install_disk":        func(s *baremetalv1.MachineSpec, v string) { s.InstallDisk = v },
	"install_mirror":      func(s *baremetalv1.MachineSpec, v string) { s.InstallMirror = v },
	"install_path":        func(s *baremetalv1.MachineSpec, v string) { s.InstallPath = v },
	"install_address":     func(s *baremetalv1.MachineSpec, v string) { s.InstallAddress = v },
	"protected_disks":     func(s *baremetalv1.MachineSpec, v string) { s.ProtectedDisks = append(s.ProtectedDisks, v) },
	"data_disks":          func(s *baremetalv1.MachineSpec, v string) { s.DataDisks = append(s.DataDisks, v) },
	"ssh_host_keys":       func(s *baremetalv1.MachineSpec, v string) { s.SshHostKeys = append(s.SshHostKeys, v) },
	"ssh_credentials_ref": func(s *baremetalv1.MachineSpec, v string) { s.SshCredentialsRef = v },
	"provider_ref":        func(s *baremetalv1.MachineSpec, v string) { s.ProviderRef = v },
}

// Spec reads a spec, unless it has a field that is not known here.
func Spec(b []byte) (*baremetalv1.MachineSpec, bool) {
	s := &baremetalv1.MachineSpec{}
	ok := Object(b, func(key, text []byte) bool {
		set := SpecFields[string(key)]
		if set == nil {
			return false
		}
		set(s, string(text))
		return true
	})
	return s, ok
}
