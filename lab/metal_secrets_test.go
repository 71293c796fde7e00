package lab_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/metal"
)

// capture records everything that crosses the provisioning segment until the function that it returns is called, which
// returns the records.
func (s *site) capture() func() []byte {
	s.Helper()
	path := filepath.Join(s.dir, "wire.pcap")
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	cmd := s.lab.RackNetwork().Command(ctx, "tcpdump", "-Z", "root", "-U", "-s", "0", "-i", metal.SwitchDevice, "-w", path)
	if err := cmd.Start(); err != nil {
		s.Fatalf("capture (package tcpdump): %v", err)
	}
	done := make(chan error, 1)
	task.Background("tcpdump", func() { done <- cmd.Wait() })
	s.Cleanup(cancel)
	testkit.Eventually(s.T, 10*time.Second, func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() > 0
	}, "tcpdump does not begin")
	return func() []byte {
		s.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			s.Fatal(err)
		}
		if err := <-done; err != nil {
			s.Error(err)
		}
		packets, err := os.ReadFile(path)
		if err != nil {
			s.Fatal(err)
		}
		return packets
	}
}

var (
	bundleForm = regexp.MustCompile(`ingot1\.[A-Za-z0-9_-]{20}`)
	keyForm    = regexp.MustCompile(`PRIVATE KEY-----`)
)

// keepsSecrets searches the capture for secrets: BMC password, administrator's token, bootstrap tokens, private keys.
func (s *site) keepsSecrets(wire []byte) {
	s.Helper()
	for _, must := range []string{"GET /boot/auto.ipxe", "/enrol"} {
		if !bytes.Contains(wire, []byte(must)) {
			s.Errorf("the capture of %d bytes lacks %q: it proves nothing", len(wire), must)
		}
	}
	s.holdsNoSecret("on the wire", wire)
	logs, err := s.lab.Logs()
	if err != nil {
		s.Fatal(err)
	}
	for name, text := range logs {
		s.holdsNoSecret("in the log of the "+name, []byte(text))
	}
	for _, m := range s.lab.Machines() {
		said, err := m.SerialLog()
		if err != nil {
			s.Fatal(err)
		}
		s.holdsNoSecret("on the console of "+m.Name(), said)
	}
}

func (s *site) holdsNoSecret(where string, data []byte) {
	s.Helper()
	admin, err := os.ReadFile(s.lab.Reach().TokenFile)
	if err != nil {
		s.Fatal(err)
	}
	for what, secret := range map[string]string{"BMC password": metal.Password,
		"administrator's token": strings.TrimSpace(string(admin))} {
		for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
			if bytes.Contains(data, []byte(form)) {
				s.Errorf("the %s stands %s", what, where)
			}
		}
	}
	for what, form := range map[string]*regexp.Regexp{"a bootstrap token": bundleForm, "a private key": keyForm} {
		if at := form.FindIndex(data); at != nil {
			s.Errorf("%s stands %s, at byte %d", what, where, at[0])
		}
	}
}
