//go:build bucket

package bucket

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/lab/s3"
)

// wantCheck runs the checks, and fails unless one finding has the level and each of the words.
func (r *rig) wantCheck(level doctor.Level, words ...string) {
	r.t.Helper()
	list := r.Check(r.t.Context())
	for _, f := range list {
		text, found := f.What+" "+f.Remedy, f.Level == level
		for _, word := range words {
			found = found && strings.Contains(text, word)
		}
		if found {
			return
		}
	}
	r.t.Errorf("no finding %s with %q: %+v", level, words, list)
}

func TestCheckOfABucketThatIsWell(t *testing.T) {
	for _, o := range []s3.Options{{}, {TLS: true}} {
		r := newRig(t, o)
		r.wantCheck(doctor.OK, "can be listed, read, written and removed from")
		if list := r.Check(t.Context()); len(list) != 1 {
			t.Errorf("%+v", list)
		}
		r.wantNothing()
	}
}

func TestCheckNamesTheFault(t *testing.T) {
	once := func(c *Config) { c.Tries = 1 }
	t.Run("unreachable", func(t *testing.T) {
		r := newRig(t, s3.Options{}, once)
		r.server.Kill()
		r.wantCheck(doctor.Fail, "cannot list", "connection refused", "images.bucket.endpoint")
	})
	t.Run("no such bucket", func(t *testing.T) {
		newRig(t, s3.Options{}, once, func(c *Config) { c.Name = "another" }).
			wantCheck(doctor.Fail, "cannot list another/", "make the bucket")
	})
	t.Run("unknown key", func(t *testing.T) {
		nobody := func(c *Config) { c.CredentialsFile = s3.WriteCredentials(t, "nobody", s3.SecretKey) }
		newRig(t, s3.Options{Users: true}, once, nobody).wantCheck(doctor.Fail, "cannot list", "correct aws_access_key_id")
	})
	t.Run("wrong secret", func(t *testing.T) {
		newRig(t, s3.Options{}, once, func(c *Config) { c.CredentialsFile = s3.WriteCredentials(t, s3.AccessKey, "wrong") }).
			wantCheck(doctor.Fail, "cannot list", "correct aws_secret_access_key")
	})
	t.Run("unknown authority", func(t *testing.T) {
		newRig(t, s3.Options{TLS: true}, once, func(c *Config) { c.Roots = nil }).
			wantCheck(doctor.Fail, "cannot list", "unknown authority", "images.bucket.ca_file")
	})
	t.Run("read-only", func(t *testing.T) {
		newRig(t, s3.Options{ReadOnly: true}, once).wantCheck(doctor.Fail, "cannot write to", "s3:PutObject")
	})
}

// TestCheckNamesTheMissingRight takes each right of a user away in turn.
func TestCheckNamesTheMissingRight(t *testing.T) {
	rights := []struct{ action, fault string }{
		{"s3:ListBucket", "cannot list"}, {"s3:GetObject", "cannot read from"}, {"s3:PutObject", "cannot write to"},
		{"s3:AbortMultipartUpload", "cannot write to"}, {"s3:DeleteObject", "cannot remove from"},
	}
	owner := newRig(t, s3.Options{Users: true})
	user := owner.server.AddUser("controller", "its-secret-key")
	c := owner.cfg
	c.Tries, c.CredentialsFile = 1, user
	b, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	r := &rig{Bucket: b, t: t}
	allow := func(without string) {
		t.Helper()
		var actions []string
		for _, right := range rights {
			if right.action != without {
				actions = append(actions, `"`+right.action+`"`)
			}
		}
		policy := fmt.Sprintf(
			`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": ["controller"]},
			"Action": [%s], "Resource": ["arn:aws:s3:::%[2]s", "arn:aws:s3:::%[2]s/*"]}]}`,
			strings.Join(actions, ", "),
			c.Name,
		)
		if err := owner.core.SetBucketPolicy(t.Context(), c.Name, policy); err != nil {
			t.Fatal(err)
		}
	}
	allow("")
	r.wantCheck(doctor.OK, "can be listed, read, written and removed from")
	for _, right := range rights {
		allow(right.action)
		r.wantCheck(doctor.Fail, right.fault, "AccessDenied", right.action)
	}
}

// TestCheckLooksAtTheClock puts a proxy before the server that changes what each side hears of the other's clock.
func TestCheckLooksAtTheClock(t *testing.T) {
	var ahead, behind time.Duration
	r := newRig(t, s3.Options{}, func(c *Config) {
		to := &url.URL{Scheme: "http", Host: c.Host}
		proxy := httptest.NewServer(&httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(to)
				p.Out.Host = p.In.Host // which is signed
				if behind != 0 {
					p.Out.Header.Set("X-Amz-Date", time.Now().Add(-behind).UTC().Format("20060102T150405Z"))
				}
			},
			ModifyResponse: func(resp *http.Response) error {
				resp.Header.Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
				return nil
			},
		})
		t.Cleanup(proxy.Close)
		c.Host, c.Tries = strings.TrimPrefix(proxy.URL, "http://"), 1
	})
	r.wantCheck(doctor.OK, "can be listed")
	ahead = 5 * time.Minute
	r.wantCheck(doctor.Warn, "clock differs by", "chrony")
	behind = 20 * time.Minute
	r.wantCheck(doctor.Fail, "cannot list", "chrony")
}
