package maas

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	gomaas "github.com/canonical/gomaasclient/client"
	"github.com/canonical/gomaasclient/entity"
	"github.com/canonical/gomaasclient/entity/event"
)

// call makes one request. what names it; writes marks one that changes something.
func (c *Client) call(ctx context.Context, what string, writes bool, fn func(*gomaas.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	x := &exchange{ctx: ctx, base: c.base}
	api, err := gomaas.GetClientWithTransport(c.region.Endpoint, c.region.APIKey, apiVersion, x)
	if err == nil {
		err = fn(api)
	}
	if err != nil {
		return x.judged(what, writes, err)
	}
	return nil
}

// Version asks for MAAS's version, with the key: a wrong one is refused.
func (c *Client) Version(ctx context.Context) (version string, err error) {
	err = c.call(ctx, "ask for the version", false, func(api *gomaas.Client) error {
		if _, err := api.Users.Whoami(); err != nil {
			return fmt.Errorf("ask who we are: %w", err)
		}
		v, err := api.Version.Get()
		if err == nil {
			version = v.Version
		}
		return err
	})
	return version, err
}

// User returns the name in MAAS of the key's user. A key never changes its user: it is asked for once.
func (c *Client) User(ctx context.Context) (string, error) {
	if name := c.user.Load(); name != nil {
		return *name, nil
	}
	var name string
	err := c.call(ctx, "ask who we are", false, func(api *gomaas.Client) error {
		u, err := api.Users.Whoami()
		if err == nil {
			name = u.UserName
		}
		return err
	})
	if err != nil {
		return "", err
	}
	c.user.Store(&name)
	return name, nil
}

// macsAtOnce is how many MAC addresses one request asks for: 39 bytes each in a URL that servers cut off at 8 KiB.
const macsAtOnce = 100

// Find returns the machines that have any of the MAC addresses, each once.
func (c *Client) Find(ctx context.Context, macs []string) (out []*Machine, err error) {
	for part := range slices.Chunk(macs, macsAtOnce) {
		list, err := c.findSome(ctx, part)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			if !slices.ContainsFunc(out, func(o *Machine) bool { return o.SystemID == m.SystemID }) {
				out = append(out, m)
			}
		}
	}
	return out, nil
}

func (c *Client) findSome(ctx context.Context, macs []string) (out []*Machine, err error) {
	err = c.call(ctx, "look for the machine", false, func(api *gomaas.Client) error {
		list, err := api.Machines.Get(&entity.MachinesParams{MACAddress: macs})
		for i := range list {
			out = append(out, fromEntity(&list[i]))
		}
		return err
	})
	return out, err
}

// Event is one line of MAAS's own log of a machine.
type Event struct {
	ID          int
	Type        string
	Description string
	// Failure: MAAS logs it as an error.
	Failure bool
}

// Events reads the newest events of a machine, newest first, at most limit.
func (c *Client) Events(ctx context.Context, systemID string, limit int) (out []Event, err error) {
	err = c.call(ctx, "read the machine's events", false, func(api *gomaas.Client) error {
		answer, err := api.Events.Get(&entity.EventParams{ID: systemID, Limit: strconv.Itoa(limit), Level: event.DEBUG})
		if err != nil {
			return err
		}
		for _, e := range answer.Events {
			out = append(out, Event{ID: e.ID, Type: e.Type, Description: e.Description, Failure: e.Level == event.ERROR ||
				e.Level == event.CRITICAL})
		}
		return nil
	})
	return out, err
}

// EraseSettings are a region's own settings of what a release erases.
type EraseSettings struct {
	// OnRelease: MAAS erases whatever it releases, by the methods below. They replace those of a request.
	OnRelease bool `json:"on_release,omitempty"`
	Secure    bool `json:"secure,omitempty"`
	Quick     bool `json:"quick,omitempty"`
}

// EraseSettings reads them.
func (c *Client) EraseSettings(ctx context.Context) (*EraseSettings, error) {
	out := &EraseSettings{}
	for name, v := range map[string]*bool{
		"enable_disk_erasing_on_release": &out.OnRelease, "disk_erase_with_secure_erase": &out.Secure,
		"disk_erase_with_quick_erase": &out.Quick,
	} {
		err := c.call(ctx, "read the region's setting "+name, false, func(api *gomaas.Client) error {
			raw, err := api.MAASServer.Get(name)
			if err == nil {
				err = json.Unmarshal(raw, v)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// PowerState asks MAAS to ask the machine's BMC.
func (c *Client) PowerState(ctx context.Context, systemID string) (state string, err error) {
	err = c.call(ctx, "ask for the power state", false, func(api *gomaas.Client) error {
		p, err := api.Machine.GetPowerState(systemID)
		if err == nil {
			state = p.State
		}
		return err
	})
	return state, err
}

// NewMachine describes a machine that is new to MAAS.
type NewMachine struct {
	Hostname, Architecture string
	MACs                   []string
	// PowerType is "manual" or a driver such as "ipmi" or "redfish", with its parameters.
	PowerType   string
	PowerParams map[string]string
}

// String keeps the BMC's password out of logs.
func (n NewMachine) String() string { return n.Hostname }

// GoString keeps it out too.
func (n NewMachine) GoString() string { return n.Hostname }

// Create adds a machine that MAAS does not know.
func (c *Client) Create(ctx context.Context, n NewMachine) error {
	// MAAS commissions what an administrator adds unless that is declined, and by no scripts of ours.
	power := map[string]any{"commission": "false"}
	for k, v := range n.PowerParams {
		power["power_parameters_"+k] = v
	}
	return c.call(ctx, "add the machine", true, func(api *gomaas.Client) error {
		_, err := api.Machines.Create(&entity.MachineParams{
			Hostname: n.Hostname, Architecture: n.Architecture, MACAddresses: n.MACs, PowerType: n.PowerType,
		}, power)
		return err
	})
}

// verbs make the requests that change something, by name. params are those of the request.
var verbs = map[Verb]func(api *gomaas.Client, id string, p map[string]string) error{
	Commission: func(api *gomaas.Client, id string, p map[string]string) error {
		_, err := api.Machine.Commission(id, &entity.MachineCommissionParams{
			CommissioningScripts: p["commissioning_scripts"], TestingScripts: p["testing_scripts"],
		})
		return err
	},
	Allocate: func(api *gomaas.Client, id string, p map[string]string) error {
		_, err := api.Machines.Allocate(&entity.MachineAllocateParams{SystemID: id, AgentName: agentName,
			Comment: p["comment"]})
		return err
	},
	Annotate: func(api *gomaas.Client, id string, p map[string]string) error {
		_, err := api.Machine.SetWorkloadAnnotations(id, p)
		return err
	},
	Deploy: func(api *gomaas.Client, id string, p map[string]string) error {
		_, err := api.Machine.Deploy(id, &entity.MachineDeployParams{
			DistroSeries: p["distro_series"], HWEKernel: p["hwe_kernel"],
			UserData:     base64.StdEncoding.EncodeToString([]byte(p["user_data"])),
			EnableHwSync: p["enable_hw_sync"] == "true", AgentName: agentName, Comment: p["comment"],
		})
		return err
	},
	Release: func(api *gomaas.Client, id string, p map[string]string) error {
		_, err := api.Machine.Release(id, &entity.MachineReleaseParams{
			Comment: p["comment"], Erase: p["erase"] == "true", SecureErase: p["secure_erase"] == "true",
			QuickErase: p["quick_erase"] == "true",
		})
		return err
	},
	TurnOn: func(api *gomaas.Client, id string, p map[string]string) error {
		_, err := api.Machine.PowerOn(id, &entity.MachinePowerOnParams{Comment: p["comment"]})
		return err
	},
	TurnOff: func(api *gomaas.Client, id string, p map[string]string) error {
		_, err := api.Machine.PowerOff(id, &entity.MachinePowerOffParams{Comment: p["comment"], StopMode: p["stop_mode"]})
		return err
	},
	Abort: func(api *gomaas.Client, id string, p map[string]string) error {
		_, err := api.Machine.Abort(id, p["comment"])
		return err
	},
	Delete: func(api *gomaas.Client, id string, _ map[string]string) error { return api.Machine.Delete(id) },
	MarkBroken: func(api *gomaas.Client, id string, p map[string]string) error {
		_, err := api.Machine.MarkBroken(id, p["comment"])
		return err
	},
	MarkFixed: func(api *gomaas.Client, id string, p map[string]string) error {
		_, err := api.Machine.MarkFixed(id, p["comment"])
		return err
	},
	EnterRescue: func(api *gomaas.Client, id string, _ map[string]string) error {
		_, err := api.Machine.RescueMode(id)
		return err
	},
	ExitRescue: func(api *gomaas.Client, id string, _ map[string]string) error {
		_, err := api.Machine.ExitRescueMode(id)
		return err
	},
	Override:  override,
	SetLayout: setLayout,
	LinkAuto:  linkAuto,
}

// agentName marks in MAAS what was allocated from here.
const agentName = "ingot"

// setLayout is a request that the library lacks, as is override.
func setLayout(api *gomaas.Client, id string, p map[string]string) error {
	m, ok := api.Machine.(*gomaas.Machine)
	if !ok {
		return fmt.Errorf("the client library has another machine type: %T", api.Machine)
	}
	return m.APIClient.GetSubObject("machines").GetSubObject(id).
		Post("set_storage_layout", url.Values{"storage_layout": {p["layout"]}}, func([]byte) error { return nil })
}

// override makes a machine whose tests have failed Ready, or Deployed.
func override(api *gomaas.Client, id string, p map[string]string) error {
	m, ok := api.Machine.(*gomaas.Machine)
	if !ok {
		return fmt.Errorf("the client library has another machine type: %T", api.Machine)
	}
	return m.APIClient.GetSubObject("machines").GetSubObject(id).
		Post("override_failed_testing", url.Values{"comment": {p["comment"]}}, func([]byte) error { return nil })
}

// linkAuto sets an address of a subnet on an interface, which MAAS chooses; force replaces the links it has.
func linkAuto(api *gomaas.Client, id string, p map[string]string) error {
	nic, err := strconv.Atoi(p["interface"])
	if err != nil {
		return fmt.Errorf("interface %q: %w", p["interface"], err)
	}
	subnet, err := strconv.Atoi(p["subnet"])
	if err != nil {
		return fmt.Errorf("subnet %q: %w", p["subnet"], err)
	}
	_, err = api.NetworkInterface.LinkSubnet(id, nic,
		&entity.NetworkInterfaceLinkParams{Mode: "AUTO", Subnet: subnet, Force: true})
	return err
}

// Do makes a request that changes something.
func (c *Client) Do(ctx context.Context, v Verb, systemID string, params map[string]string) error {
	fn := verbs[v.Kind()]
	return c.call(ctx, strings.ReplaceAll(string(v), "_", " "), true,
		func(api *gomaas.Client) error { return fn(api, systemID, params) })
}
