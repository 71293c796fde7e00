package webhook_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/webhook"
)

// kinds are addresses and what they are. What a policy does not allow is refused by that name.
var kinds = map[string]string{
	"8.8.8.8": "", "2606:4700:4700::1111": "", "100.63.255.255": "", "172.32.0.1": "", "198.20.0.1": "", "2003::1": "",
	"127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback",
	"169.254.169.254": "link-local", "169.254.0.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local",
	"::ffff:169.254.169.254": "link-local", "fd00:ec2::254": "metadata",
	"100.100.100.200": "metadata", "::ffff:100.100.100.200": "metadata", "64:ff9b::6464:64c8": "reserved",
	"168.63.129.16": "metadata",
	"10.0.0.1":      "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private",
	"fd12:3456::1": "private",
	"100.64.0.1":   "private", "100.127.255.255": "private", "::ffff:10.0.0.1": "private",
	"0.0.0.0": "unspecified or multicast", "::": "unspecified or multicast", "224.0.0.1": "unspecified or multicast",
	"ff02::1": "unspecified or multicast", "ff01::1": "unspecified or multicast",
	"0.1.2.3": "reserved", "192.0.0.1": "reserved", "198.18.0.1": "reserved", "198.19.255.255": "reserved",
	"240.0.0.1":       "reserved",
	"255.255.255.255": "reserved", "64:ff9b::a9fe:a9fe": "reserved", "64:ff9b:1::1": "reserved",
	"2002:7f00:1::":  "reserved",
	"2001:0:53aa::1": "reserved", "::127.0.0.1": "reserved",
}

// TestEveryKindOfAddress under every policy: public ones always, and no configuration opens what leads nowhere.
func TestEveryKindOfAddress(t *testing.T) {
	for n := range 8 {
		p := webhook.Policy{AllowLoopback: n&1 != 0, AllowLinkLocal: n&2 != 0, DenyPrivate: n&4 != 0}
		allowed := map[string]bool{"": true, "loopback": p.AllowLoopback, "link-local": p.AllowLinkLocal,
			"private": !p.DenyPrivate}
		for text, kind := range kinds {
			err := p.CheckAddr(netip.MustParseAddr(text))
			var refused *webhook.RefusedError
			switch {
			case (err == nil) != allowed[kind]:
				t.Errorf("%+v: %s, which is %q: %v", p, text, kind, err)
			case err != nil && (!errors.As(err, &refused) || refused.Kind != kind || !strings.Contains(err.Error(), kind)):
				t.Errorf("%s is refused as %v, want %s", text, err, kind)
			}
			host := text
			if strings.Contains(text, ":") {
				host = "[" + strings.ReplaceAll(text, "%", "%25") + "]"
			}
			if err := p.CheckURL("https://" + host + ":8443/x"); (err == nil) != allowed[kind] {
				t.Errorf("%+v: https://%s: %v", p, host, err)
			}
		}
	}
}

func TestURLs(t *testing.T) {
	const path = "example.org/hook?key=1"
	for url, why := range map[string]string{
		"https://" + path: "", "HTTPS://" + path: "", "https://example.org": "", "https://example.org:8443/": "",
		"https://xn--bcher-kva.example/": "",
		"http://" + path:                 "use https", "http://localhost/": "use https", "http://127.0.0.1/": "use https",
		"ftp://" + path: "not an absolute", "example.org": "not an absolute", "/x": "not an absolute",
		"https:example.org": "not an absolute",
		"https://":          "not an absolute", "https://:443/": "not an absolute",
		"https://exa mple.org/": "not an absolute", "": "not an absolute",
		"javascript:alert(1)": "not an absolute", "unix:///run/x": "not an absolute",
		"https://user@example.org/": "a user", "https://user:pass@example.org/": "a user",
		"https://example.org:0/": "from 1 to 65535", "https://example.org:99999/": "from 1 to 65535",
		"https://example.org/#x": "a fragment", "https://example.org/#": "a fragment",
		"https://example.org/" + strings.Repeat("x", 2048): "longer than 2048",
		"https://127.0.0.1/": "loopback", "https://[::1]/": "loopback",
		"https://169.254.169.254/latest/meta-data": "link-local",
	} {
		err := webhook.Policy{}.CheckURL(url)
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%.60q: %v, want %q", url, err, why)
		}
	}
	open := webhook.Policy{AllowLoopback: true}
	for url, fine := range map[string]bool{
		"http://localhost:8080/": true, "http://127.0.0.1/": true, "http://[::1]/": true, "http://example.org/": false,
		"http://10.0.0.1/":              false,
		"http://localhost.example.org/": false,
	} {
		if err := open.CheckURL(url); (err == nil) != fine {
			t.Errorf("with loopback: %s: %v", url, err)
		}
	}
}
