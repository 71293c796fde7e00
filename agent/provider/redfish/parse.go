package redfish

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/redfish"

	"github.com/ingot-metal/ingot/agent/provider"
)

// path is a link to a resource of the same service: absolute, without host.
type path string

// UnmarshalJSON takes {"@odata.id": "/…"} and, as some services write, a bare string. Whatever is no path of this
// service is empty.
func (p *path) UnmarshalJSON(b []byte) error {
	var link struct {
		ID string `json:"@odata.id"`
	}
	if json.Unmarshal(b, &link) != nil {
		// Not an object; a string, or nothing that we could follow.
		if json.Unmarshal(b, &link.ID) != nil {
			link.ID = ""
		}
	}
	*p = cleanPath(link.ID)
	return nil
}

func cleanPath(s string) path {
	s, _, _ = strings.Cut(s, "#")
	u, err := url.Parse(s)
	if err != nil || u.Host != "" || u.Scheme != "" || u.User != nil || !strings.HasPrefix(s, "/") ||
		strings.HasPrefix(s, "//") || strings.ContainsAny(s, "\\ \t\r\n") {
		return ""
	}
	return path(s)
}

// lenient reads a property that may be of another type than the schema says; then it stays zero.
type lenient[T any] struct{ V T }

func (l *lenient[T]) UnmarshalJSON(b []byte) error {
	var v T
	if json.Unmarshal(b, &v) == nil {
		l.V = v
	}
	return nil
}

type serviceRoot struct {
	Type    lenient[string] `json:"@odata.type"`
	Version lenient[string] `json:"RedfishVersion"`
	Vendor  lenient[string]
	Product lenient[string]
	Systems path
	Chassis path

	AccountService path
}

// parseRoot says whether b is a service root at all (DSP0266, 7.3).
func parseRoot(b []byte) (serviceRoot, error) {
	var r serviceRoot
	if err := json.Unmarshal(b, &r); err != nil {
		return serviceRoot{}, fmt.Errorf("%w: service root: %w", provider.ErrProtocol, err)
	}
	if r.Version.V == "" && !strings.Contains(r.Type.V, "ServiceRoot") {
		return serviceRoot{}, fmt.Errorf("%w: no service root", provider.ErrProtocol)
	}
	return r, nil
}

type collection struct {
	Members []json.RawMessage
	Next    lenient[string] `json:"Members@odata.nextLink"`
}

func parseCollection(b []byte) (collection, error) {
	var c collection
	if err := json.Unmarshal(b, &c); err != nil {
		return collection{}, fmt.Errorf("%w: collection: %w", provider.ErrProtocol, err)
	}
	return c, nil
}

// links are the paths of the members, those that have one.
func (c collection) links() []path {
	var out []path
	for _, m := range c.Members {
		var p path
		if json.Unmarshal(m, &p) == nil && p != "" {
			out = append(out, p)
		}
	}
	return out
}

type system struct {
	UUID                    lenient[string]
	Serial                  lenient[string] `json:"SerialNumber"`
	Manufacturer            lenient[string]
	Model                   lenient[string]
	PowerState              lenient[redfish.PowerState]
	IndicatorLED            lenient[string]
	LocationIndicatorActive *lenient[bool]
	EthernetInterfaces      path
	LogServices             path
	VirtualMedia            path
	Status                  lenient[status]
	MemorySummary           lenient[summary]
	ProcessorSummary        lenient[summary]
	Memory, Processors      path
	Boot                    lenient[bootOverride]
	Links                   lenient[struct{ Chassis, ManagedBy []path }]
	Actions                 lenient[struct {
		Reset lenient[resetAction] `json:"#ComputerSystem.Reset"`
	}]
	Settings lenient[struct{ SettingsObject path }] `json:"@Redfish.Settings"`
}

type resetAction struct {
	Target  lenient[string]              `json:"target"`
	Allowed lenient[[]redfish.ResetType] `json:"ResetType@Redfish.AllowableValues"`
}

func parseSystem(b []byte) (system, error) {
	var s system
	if err := json.Unmarshal(b, &s); err != nil {
		return system{}, fmt.Errorf("%w: system: %w", provider.ErrProtocol, err)
	}
	return s, nil
}

// power is on or off only when nothing is under way.
func (s system) power() provider.PowerState {
	switch s.PowerState.V {
	case redfish.OnPowerState:
		return provider.PowerOn
	case redfish.OffPowerState:
		return provider.PowerOff
	}
	return provider.PowerUnknown
}

// resetTypes are what may do each switch, best first. None of them is anything but idempotent: PushPowerButton, which
// turns a machine on that has just gone off, is not among them.
var resetTypes = map[provider.Switch][]redfish.ResetType{
	provider.SwitchOn:      {redfish.OnResetType, redfish.ForceOnResetType},
	provider.SwitchOff:     {redfish.ForceOffResetType},
	provider.SwitchSoftOff: {redfish.GracefulShutdownResetType},
}

// resetFor chooses the reset type for sw. A service that doesn't list what it takes is asked for the best.
func (s system) resetFor(sw provider.Switch) (target path, kind redfish.ResetType, ok bool) {
	reset := s.Actions.V.Reset.V
	target = cleanPath(reset.Target.V)
	if target == "" {
		return "", "", false
	}
	for _, kind := range resetTypes[sw] {
		if len(reset.Allowed.V) == 0 || slices.Contains(reset.Allowed.V, kind) {
			return target, kind, true
		}
	}
	return "", "", false
}

type ethernet struct{ MACAddress, PermanentMACAddress lenient[string] }

// macsOf are the addresses of an interface, lower case with colons.
func macsOf(b []byte) []string {
	var e ethernet
	if json.Unmarshal(b, &e) != nil {
		return nil
	}
	return []string{
		strings.ToLower(strings.ReplaceAll(e.MACAddress.V, "-", ":")),
		strings.ToLower(strings.ReplaceAll(e.PermanentMACAddress.V, "-", ":")),
	}
}

func when(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
