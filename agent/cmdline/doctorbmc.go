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
	"slices"
	"sync/atomic"
	"time"

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

// checkBMCs asks every BMC for what it says to anybody. It sends no password.
func checkBMCs(ctx context.Context, list []*fleetv1.BMCTarget) []doctor.Finding {
	if len(list) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bmcsTime)
	defer cancel()
	findings := make([]doctor.Finding, len(list))
	var next, asked atomic.Int64
	group, _ := task.New(ctx) // each function gets its context
	for range min(bmcsAtOnce, len(list)) {
		group.Go("ask BMCs", func(ctx context.Context) error {
			for i := next.Add(1) - 1; i < int64(len(list)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				err := askBMC(ctx, list[i].GetEndpoint())
				if ctx.Err() != nil {
					return nil // it had less time than it may take
				}
				asked.Add(1)
				if err != nil {
					findings[i] = doctor.Fault("bmc", list[i].GetMachineId()+": "+err.Error(),
						"correct bmc_endpoint, its cable or its VLAN; ingot why "+list[i].GetMachineId())
				}
			}
			return nil
		})
	}
	err := group.Wait()
	out := slices.DeleteFunc(findings, func(f doctor.Finding) bool { return f.Level == "" })
	if err != nil {
		return append(out, doctor.Fault("bmc", err.Error(), "ingot list --select conditions.BMCReachable=false"))
	}
	if n := int64(len(list)) - asked.Load(); n > 0 {
		out = append(out, doctor.Warning("bmc", fmt.Sprintf("%d were not asked within %s", n, bmcsTime),
			"ingot list --select conditions.BMCReachable=false"))
	}
	return append(out, doctor.Well("bmc", fmt.Sprintf("%d of %d BMCs answer", asked.Load()-faults(out), len(list))))
}

// faults counts the findings of what does not work.
func faults(list []doctor.Finding) (n int64) {
	for _, f := range list {
		if f.Level == doctor.Fail {
			n++
		}
	}
	return n
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
