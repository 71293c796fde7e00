package view

import (
	"strconv"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Scripts is the list of scripts.
func (s Style) Scripts(list []*pb.Script, now time.Time) *Table {
	t := &Table{Header: []string{"SCRIPT_REF", "SIZE", "INTERPRETER", "DESTRUCTIVE", "AGE", "SHA256"}}
	for _, sc := range list {
		destructive := "no"
		if sc.GetDestructive() {
			destructive = s.Warn("yes")
		}
		t.Add(sc.GetScriptRef(), strconv.FormatInt(sc.GetSizeBytes(), 10), Clean(sc.GetInterpreter()), destructive,
			Age(sc.GetCreatedAt(), now), sc.GetSha256())
	}
	return t
}

// SSHCredentials is the list of SSH credentials.
func (s Style) SSHCredentials(list []*pb.SSHCredentials) *Table {
	t := &Table{Header: []string{"CREDENTIALS_REF", "USERNAME", "VERSION", "UPDATED", "PUBLIC_KEY"}}
	for _, c := range list {
		name := Clean(c.GetUsername())
		if name == "" {
			name = s.Warn("sealed with a lost key: set them again")
		}
		t.Add(c.GetCredentialsRef(), name, strconv.FormatInt(c.GetVersion(), 10), Time(c.GetUpdatedAt()),
			Clean(c.GetPublicKey()))
	}
	return t
}
