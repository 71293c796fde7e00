package validate

import (
	"crypto/tls"
	"github.com/ingot-metal/ingot/internal/weburl"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/pki"
)

const (
	maxPEM         = 256 << 10
	maxBearerToken = 16 << 10
)

// Cluster checks a cluster before it is stored. Errors never repeat a secret.
func Cluster(r *baremetalv1.SetClusterRequest) error {
	var f faults
	if !refForm.MatchString(r.GetClusterRef()) {
		f.add("cluster_ref", refRule)
	}
	f.add("server", apiServer(r.GetServer()))
	f.add("ca_pem", certificates(r.GetCaPem()))
	clusterCredentials(&f, r)
	return f.err()
}

func apiServer(s string) string {
	const rule = "the base URL of an API server: https://host:port"
	u, err := weburl.Parse(s)
	if err != nil || u.Scheme != "https" || u.Port() == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" ||
		u.Path != "" && u.Path != "/" || text(s, maxText) != "" {
		return rule
	}
	return ""
}

func certificates(text []byte) string {
	if len(text) == 0 || len(text) > maxPEM {
		return "required, at most 256 KiB: the CA of the cluster, PEM"
	}
	if _, err := pki.Certificates(text); err != nil {
		return "not certificates in PEM"
	}
	return ""
}

func clusterCredentials(f *faults, r *baremetalv1.SetClusterRequest) {
	certificate := len(r.GetClientCertificatePem()) > 0 || len(r.GetClientKeyPem()) > 0
	switch {
	case r.GetBearerToken() == "" && !certificate:
		f.add("bearer_token", "required, or else client_certificate_pem and client_key_pem")
	case r.GetBearerToken() != "" && certificate:
		f.add("bearer_token", "either this, or client_certificate_pem and client_key_pem")
	case certificate:
		if len(r.GetClientCertificatePem()) > maxPEM || len(r.GetClientKeyPem()) > maxPEM {
			f.add("client_certificate_pem", "longer than 256 KiB")
		} else if _, err := tls.X509KeyPair(r.GetClientCertificatePem(), r.GetClientKeyPem()); err != nil {
			f.add("client_certificate_pem", "not a certificate and its key in PEM")
		}
	default:
		if why := secretText(r.GetBearerToken(), maxBearerToken); why != "" {
			f.add("bearer_token", why)
		} else if !printableASCII(r.GetBearerToken()) {
			f.add("bearer_token", "not printable ASCII")
		}
	}
}
