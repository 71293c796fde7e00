//go:build clusterapi

package clusterapi

import (
	"encoding/base64"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
	"github.com/ingot-metal/ingot/lab/process"
)

// TestElection runs two providers as the Deployment does, under the account of the manifests: both become ready, one
// holds the lease, and the other takes it over when that one is killed.
func TestElection(t *testing.T) {
	g := &management{Server: kubetest.Start(t), t: t, dir: t.TempDir(), account: &account{}}
	cert, key := g.CA.Client(t, "admin", "system:masters")
	g.adminConfig = g.kubeconfig("admin", object{"client-certificate-data": base64.StdEncoding.EncodeToString(cert),
		"client-key-data": base64.StdEncoding.EncodeToString(key)})
	g.kubectl("apply", "--server-side", "-f", filepath.Join(named(t, envModule), "core/config/crd/bases"))
	g.install()
	config := g.kubeconfig("provider", object{"token": g.Token("ingot-system", "ingot-cluster-api")})
	start := func() *process.Process {
		address := "127.0.0.1:" + testkit.FreePort(t)
		// There is no work, and so Ingot is not called.
		p := g.run([]string{"KUBECONFIG=" + config}, named(t, envProvider), "--server=127.0.0.1:1", "--leader-elect",
			"--ca-file="+g.file("ca.pem", g.CA.PEM), "--token-file="+g.file("no-token", []byte("x")), "--health="+address)
		for _, path := range []string{"/healthz", "/readyz"} {
			testkit.Eventually(t, soon, func() bool {
				resp, err := http.Get("http://" + address + path)
				if err != nil {
					return false
				}
				defer resp.Body.Close()
				return resp.StatusCode == http.StatusOK
			}, "%s of %s is not well", path, address)
		}
		return p
	}
	holder := func() string {
		const leases = "/apis/coordination.k8s.io/v1/namespaces/ingot-system/leases/"
		return kubetest.Text(g.Admin.Get(leases+"ingot-cluster-api"), "spec", "holderIdentity")
	}
	first := start()
	testkit.Eventually(t, soon, func() bool { return holder() != "" }, "the lease is nobody's")
	was := holder()
	start()
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, soon, func() bool { return holder() != was && holder() != "" },
		"the lease is still that of %s", was)
}
