package validate

import (
	"crypto/x509"
	"github.com/ingot-metal/ingot/internal/weburl"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/userdata"
)

const maxUserData = 32 << 10

// keyForm is that of MAAS's API keys.
var keyForm = regexp.MustCompile(`^[A-Za-z0-9]{1,64}:[A-Za-z0-9]{1,64}:[A-Za-z0-9]{1,64}$`)

// MAASRegion checks a region before it is stored. Errors never repeat a key.
func MAASRegion(r *baremetalv1.SetMAASRegionRequest) error {
	var f faults
	if !refForm.MatchString(r.GetRegionRef()) {
		f.add("region_ref", refRule)
	}
	f.add("endpoint", maasEndpoint(r.GetEndpoint()))
	if !keyForm.MatchString(r.GetApiKey()) {
		f.add("api_key", "consumer:token:secret, as MAAS shows it under the user's API keys")
	}
	if len(r.GetCaPem()) > 0 && !x509.NewCertPool().AppendCertsFromPEM(r.GetCaPem()) {
		f.add("ca_pem", "holds no certificate")
	}
	f.add("user_data", userData(r.GetUserData()))
	return f.err()
}

func maasEndpoint(s string) string {
	u, err := weburl.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https":
		return "an http or https URL such as http://maas.example:5240/MAAS"
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "scheme, host and path only"
	case strings.Contains(u.Path, "/api/"):
		return "without /api/2.0"
	}
	return ""
}

func userData(s string) string {
	var doc map[string]any
	switch {
	case s == "":
		return ""
	case len(s) > maxUserData:
		return "more than 32 KiB"
	case userdata.TypeOf(s) != userdata.CloudConfig:
		return "does not begin with #cloud-config"
	case yaml.Unmarshal([]byte(s), &doc) != nil:
		return "no YAML"
	}
	return ""
}
