package httpboot

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// phones is a boot server that keeps the calls. With fail set, it cannot keep them.
type phones struct {
	*rig
	mu    sync.Mutex
	heard []PhoneCall
	fail  error
}

func newPhones(t *testing.T) *phones {
	p := &phones{}
	p.rig = newRig(t, func(cfg *Config) {
		cfg.PhonedHome = func(_ context.Context, c PhoneCall) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.fail == nil {
				p.heard = append(p.heard, c)
			}
			return p.fail
		}
	})
	p.Set(
		View{PhoneHomes: []PhoneHome{{MachineID: "m-1", OperationID: "op-1", SecretSHA256: sha256.Sum256([]byte("s3cret"))}}},
	)
	return p
}

// call posts what cloud-init's phone_home posts.
func (p *phones) call(secret string, form url.Values) int {
	p.t.Helper()
	resp, err := http.PostForm(p.Base()+"/phone-home/"+secret, form)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode
}

var said = url.Values{"instance_id": {"ingot-op-1"}, "hostname": {"web-1"}, "fqdn": {"web-1.lab"},
	"pub_key_ed25519": {"ssh-ed25519 AAAA root@web-1\n"}}

func TestAPhoneHomeIsKeptOnce(t *testing.T) {
	p := newPhones(t)
	for range 3 {
		if code := p.call("s3cret", said); code != http.StatusOK {
			t.Fatalf("answered %d", code)
		}
	}
	if len(p.heard) != 1 {
		t.Fatalf("kept %d calls", len(p.heard))
	}
	c := p.heard[0]
	if c.MachineID != "m-1" || c.OperationID != "op-1" || c.InstanceID != "ingot-op-1" || c.Hostname != "web-1" ||
		c.SSHHostKey != "ssh-ed25519 AAAA root@web-1" || c.From.String() != "127.0.0.1" {
		t.Errorf("kept %+v", c)
	}
	for i := range 2 * maxPhoneCalls {
		if code := p.call("s3cret", url.Values{"instance_id": {strings.Repeat("i", i)}}); code != http.StatusOK {
			t.Fatalf("answered %d", code)
		}
	}
	if len(p.heard) != maxPhoneCalls {
		t.Errorf("one secret had %d calls reported", len(p.heard))
	}
}

func TestAnUnknownSecretLearnsNothing(t *testing.T) {
	p := newPhones(t)
	nowhere, _ := p.do(http.MethodPost, "/nowhere")
	for _, secret := range []string{"s3cre", "s3cret0", "", "a/b", strings.Repeat("x", maxToken+1)} {
		if code := p.call(secret, said); code != nowhere.StatusCode || code != http.StatusNotFound {
			t.Errorf("%q is answered %d", secret, code)
		}
	}
	if a, _ := p.do(http.MethodGet, "/phone-home/s3cret"); a.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a GET is answered %d", a.StatusCode)
	}
	p.Set(View{}) // the operation is over
	if code := p.call("s3cret", said); code != http.StatusNotFound {
		t.Errorf("a secret that is over is answered %d", code)
	}
	if len(p.heard) != 0 {
		t.Errorf("kept %v", p.heard)
	}
}

func TestAPhoneHomeIsBounded(t *testing.T) {
	p := newPhones(t)
	if code := p.call(
		"s3cret",
		url.Values{"hostname": {strings.Repeat("x", maxPhoneBody)}},
	); code != http.StatusBadRequest {
		t.Errorf("a body that is too large is answered %d", code)
	}
	if code := p.call("s3cret", url.Values{
		"instance_id": {"ingot-op-1"}, "hostname": {"a\x1b[2J"}, "pub_key_ed25519": {strings.Repeat("x", maxPhoneField+1)},
	}); code != http.StatusOK {
		t.Fatalf("answered %d", code)
	}
	if c := p.heard[0]; c.Hostname != "" || c.SSHHostKey != "" || c.InstanceID != "ingot-op-1" {
		t.Errorf("kept %+v", c)
	}
}

// TestAPhoneHomeThatIsNotKeptComesAgain: cloud-init repeats a call that is answered with an error.
func TestAPhoneHomeThatIsNotKeptComesAgain(t *testing.T) {
	p := newPhones(t)
	p.fail = errors.New("the disk is full")
	if code := p.call("s3cret", said); code != http.StatusServiceUnavailable {
		t.Errorf("answered %d", code)
	}
	p.fail = nil
	if code := p.call("s3cret", said); code != http.StatusOK || len(p.heard) != 1 {
		t.Errorf("answered %d, kept %d", code, len(p.heard))
	}
}
