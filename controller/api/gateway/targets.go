package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/label"
)

// TargetsPath is where Prometheus finds the machines, as its http_sd_config reads them:
// https://prometheus.io/docs/prometheus/latest/http_sd/. The query has port, and filter as ListMachines takes it.
const TargetsPath = "/api/v1/prometheus-targets"

// targetGroup is one machine, in the form of http_sd_config.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// targets answers with the machines of a filter. They are read through ListMachines, with the caller's token.
func (g *Gateway) targets(w http.ResponseWriter, r *http.Request, op operation, _ string) {
	release, code, refusal := g.prepare(w, r, op)
	if refusal != nil {
		g.refuse(w, code, refusal)
		return
	}
	defer release()
	port, refusal := scrapePort(r.Form)
	if refusal != nil {
		g.refuse(w, http.StatusBadRequest, refusal)
		return
	}
	ctx, err := runtime.AnnotateContext(r.Context(), g.mux, r, op.call)
	if err != nil {
		g.callFailed(r.Context(), g.mux, nil, w, r, err)
		return
	}
	raw, err := g.allTargets(ctx, r.Form.Get("filter"), port)
	if err != nil {
		g.callFailed(ctx, g.mux, nil, w, r, err)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	g.write(w, raw)
}

func scrapePort(query url.Values) (string, *failure.Error) {
	port := query.Get("port")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || len(query["port"]) != 1 ||
		len(query["filter"]) > 1 {
		return "", failure.Invalid(reasonInvalidField, "port is the one that the machines are scraped at, such as 9100").
			WithField("port", "1 to 65535, once")
	}
	return port, nil
}

// targetBytes bounds the answer, which http_sd_config cannot read in pages: some 20,000 machines.
const targetBytes = 4 << 20

// allTargets is the list of the machines of a filter as JSON. One that is too long is refused as INVALID_FIELD.
func (g *Gateway) allTargets(ctx context.Context, filter, port string) ([]byte, error) {
	page := &baremetalv1.ListMachinesRequest{Filter: filter, PageSize: 1000}
	all := []byte{'['}
	for {
		answer, err := g.machines.ListMachines(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, m := range answer.GetMachines() {
			one, err := json.Marshal(targetOf(m, port))
			if err != nil {
				return nil, fmt.Errorf("write target: %w", err)
			}
			if len(all) > 1 {
				all = append(all, ',')
			}
			if all = append(all, one...); len(all) >= targetBytes {
				return nil, failure.ToStatus(failure.Invalid(reasonInvalidField,
					"the targets of these machines are more than 4 MiB; narrow the filter, such as by site").
					WithField("filter", "too many machines")).Err()
			}
		}
		if page.PageToken = answer.GetNextPageToken(); page.GetPageToken() == "" {
			return append(all, ']'), nil
		}
	}
}

// targetOf is a machine at the address that is known of it, or else at its id, as a host name.
func targetOf(m *baremetalv1.Machine, port string) targetGroup {
	spec := m.GetSpec()
	labels := map[string]string{"machine_id": m.GetMachineId()}
	for name, value := range map[string]string{"site": spec.GetSite(), "group": spec.GetGroup(),
		label.Rack: label.RackOf(spec.GetRack(), m.GetLabels())} {
		if value != "" {
			labels[name] = value
		}
	}
	// Two keys may become one name: the first in their order stays.
	for _, key := range slices.Sorted(maps.Keys(m.GetLabels())) {
		if name := "label_" + labelName(key); labels[name] == "" {
			labels[name] = m.GetLabels()[key]
		}
	}
	host := cmp.Or(hostOf(spec.GetSshEndpoint()), m.GetStatus().GetProbedAddress(), addressOf(spec.GetInstallAddress()),
		m.GetMachineId())
	return targetGroup{Targets: []string{net.JoinHostPort(host, port)}, Labels: labels}
}

func hostOf(endpoint string) string {
	host, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		return ""
	}
	return host
}

func addressOf(prefix string) string {
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		return ""
	}
	return p.Addr().String()
}

// labelName is a key as Prometheus takes it: what no name has there becomes an underscore.
func labelName(key string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, key)
}
