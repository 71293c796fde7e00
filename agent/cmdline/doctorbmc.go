package cmdline

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/ingot-metal/ingot/agent/config"
	"github.com/ingot-metal/ingot/agent/state"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/internal/task"
)

const (
	// bmcTime bounds the wait for one BMC; slow ones take five seconds an answer.
	bmcTime = 10 * time.Second
	// bmcsTime bounds the wait for all.
	bmcsTime = 2 * time.Minute
	// bmcsAtOnce is how many are asked side by side.
	bmcsAtOnce = 32
)

// bmcs are those of the site, as the controller has last told the agent.
func bmcs(ctx context.Context, c config.Config) []*fleetv1.BMCTarget {
	var list []*fleetv1.BMCTarget
	// An agent that has not been told anything has another finding.
	_ = withStore(ctx, c, func(s *state.Store) error {
		doc, err := s.SiteDocument(ctx)
		list = doc.GetBmcs()
		return err
	})
	return list
}

// checkBMCs asks every BMC for what it says to anybody. It sends no password.
func checkBMCs(ctx context.Context, list []*fleetv1.BMCTarget) []doctor.Finding {
	if len(list) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bmcsTime)
	defer cancel()
	findings := make([]doctor.Finding, len(list))
	group, _ := task.New(ctx)
	next := make(chan int)
	for range min(bmcsAtOnce, len(list)) {
		group.Go("ask BMCs", func(context.Context) error {
			for i := range next {
				if err := askBMC(ctx, list[i].GetEndpoint()); err != nil {
					findings[i] = doctor.Fault("bmc", list[i].GetMachineId()+": "+err.Error(),
						"correct bmc_endpoint, its cable or its VLAN; ingot why "+list[i].GetMachineId())
				}
			}
			return nil
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	err := group.Wait()
	var out []doctor.Finding
	for _, f := range findings {
		if f.Level != "" {
			out = append(out, f)
		}
	}
	if err != nil {
		return append(out, doctor.Fault("bmc", err.Error(), ""))
	}
	summary := doctor.Well("bmc", fmt.Sprintf("%d of %d BMCs answer", len(list)-len(out), len(list)))
	return append(out, summary)
}

func askBMC(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, bmcTime)
	defer cancel()
	a, err := bmcaddr.Parse(endpoint)
	if err != nil {
		return fmt.Errorf("bmc_endpoint: %w", err)
	}
	switch a.Scheme {
	case "ipmi":
		return askIPMI(ctx, net.JoinHostPort(a.Host, cmp.Or(a.Port, "623")))
	case "redfish+http":
		return askRedfish(ctx, "http://"+net.JoinHostPort(a.Host, cmp.Or(a.Port, "80")))
	}
	return askRedfish(ctx, "https://"+net.JoinHostPort(a.Host, cmp.Or(a.Port, "443")))
}

// askRedfish reads the service root, which every service shows without a password (DSP0266, "Service root").
func askRedfish(ctx context.Context, base string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/redfish/v1/", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		// Whose certificate it is matters where a password is sent; here none is.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	}}
	resp, err := client.Do(req)
	if err != nil {
		return errors.Unwrap(err) // without the URL and its verb
	}
	defer resp.Body.Close()
	var root struct {
		RedfishVersion string
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if json.Unmarshal(text, &root) != nil || root.RedfishVersion == "" {
		return fmt.Errorf("%s answers %s, and not as a Redfish service", base, resp.Status)
	}
	return nil
}

// presencePing and presencePong are the RMCP messages of IPMI 2.0, 13.2.3 and 13.2.4; byte 9 is the message's tag.
var presencePing = []byte{0x06, 0x00, 0xff, 0x06, 0x00, 0x00, 0x11, 0xbe, 0x80, 0x00, 0x00, 0x00}

const presencePong = 0x40

// askIPMI sends a presence ping three times: UDP loses packets.
func askIPMI(ctx context.Context, address string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	answer := make([]byte, 64)
	for range 3 {
		if _, err = conn.Write(presencePing); err != nil {
			return err
		}
		if err = conn.SetReadDeadline(time.Now().Add(bmcTime / 4)); err != nil {
			return err
		}
		var n int
		n, err = conn.Read(answer)
		if err == nil && n > 8 && bytes.Equal(answer[4:8], presencePing[4:8]) && answer[8] == presencePong {
			return nil
		}
	}
	return fmt.Errorf("%s does not answer an RMCP ping: %w", address, cmp.Or(err, errors.New("it answers something else")))
}
