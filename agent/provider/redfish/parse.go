package redfish

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/stmcginnis/gofish/redfish"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/hwid"
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

// lenient reads a property that may be of another type than the schema's. Numbers, texts and truth values are converted
// where they mean the same; for other types V stays zero, and Said false.
type lenient[T any] struct {
	V T
	// Said: there is a value that could be read.
	Said bool
}

func (l *lenient[T]) UnmarshalJSON(b []byte) error {
	var v T
	if string(b) == "null" {
		return nil
	}
	err := json.Unmarshal(b, &v)
	if err != nil {
		err = otherType(b, &v)
	}
	if err == nil {
		l.V, l.Said = v, true
	}
	return nil
}

// otherType reads "5400" as a number, 5400 as a text, and "true" as true.
func otherType(b []byte, into any) (err error) {
	var text string
	switch v := into.(type) {
	case *string:
		var n json.Number
		if err = json.Unmarshal(b, &n); err == nil {
			*v = n.String()
		}
	case *float64:
		if err = json.Unmarshal(b, &text); err == nil {
			*v, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
		if err == nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
			err = errNumber
		}
	case *bool:
		if err = json.Unmarshal(b, &text); err == nil {
			*v, err = strconv.ParseBool(strings.ToLower(strings.TrimSpace(text)))
		}
	default:
		err = errNumber
	}
	return err
}

var errNumber = errors.New("not of this type")

// words are values of an enumeration, as a service writes them: some write them in another case than the schema's.
type words[T ~string] []T

// UnmarshalJSON leaves out members that are no text: one of them costs no other.
func (w *words[T]) UnmarshalJSON(b []byte) error {
	var all []lenient[T]
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for _, one := range all {
		if one.Said {
			*w = append(*w, one.V)
		}
	}
	return nil
}

// find returns a value in the service's own spelling, in which it is sent back.
func (w words[T]) find(want T) (as T, ok bool) {
	i := slices.IndexFunc(w, func(x T) bool { return same(x, want) })
	if i < 0 {
		return want, false
	}
	return w[i], true
}

// same compares two values of an enumeration.
func same[T ~string](a, b T) bool { return strings.EqualFold(strings.TrimSpace(string(a)), string(b)) }

type serviceRoot struct {
	Type    lenient[string] `json:"@odata.type"`
	Version lenient[string] `json:"RedfishVersion"`
	Vendor  lenient[string]
	Product lenient[string]
	Systems path
	Chassis path

	AccountService path
}

// parseRoot decodes a service root (DSP0266, 7.3); other documents are ErrProtocol.
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
	Next    lenient[string]  `json:"Members@odata.nextLink"`
	Count   lenient[float64] `json:"Members@odata.count"`
}

// looseCollection has the annotations where OData itself has them (DMTF's mock-up of a rack server), and the members
// below Links, where DMTF's emulator of interfaces puts them.
type looseCollection struct {
	collection
	Next  lenient[string]  `json:"@odata.nextLink"`
	Count lenient[float64] `json:"@odata.count"`
	Links lenient[collection]
}

func parseCollection(b []byte) (collection, error) {
	var c looseCollection
	if err := json.Unmarshal(b, &c); err != nil {
		return collection{}, fmt.Errorf("%w: collection: %w", provider.ErrProtocol, err)
	}
	out := c.collection
	if out.Members == nil {
		out.Members = c.Links.V.Members
		out.Next, out.Count = cmp.Or(out.Next, c.Links.V.Next), cmp.Or(out.Count, c.Links.V.Count)
	}
	out.Next, out.Count = cmp.Or(out.Next, c.Next), cmp.Or(out.Count, c.Count)
	return out, nil
}

type system struct {
	UUID                    lenient[string]
	Serial                  lenient[string] `json:"SerialNumber"`
	Manufacturer            lenient[string]
	Model                   lenient[string]
	PowerState              lenient[string]
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
	Links                   lenient[struct{ Chassis, ManagedBy lenient[[]path] }]
	Actions                 lenient[struct {
		Reset lenient[resetAction] `json:"#ComputerSystem.Reset"`
	}]
	Settings lenient[struct{ SettingsObject path }] `json:"@Redfish.Settings"`
}

type resetAction struct {
	Target  lenient[string]                   `json:"target"`
	Allowed lenient[words[redfish.ResetType]] `json:"ResetType@Redfish.AllowableValues"`
}

func parseSystem(b []byte) (system, error) {
	var s system
	if err := json.Unmarshal(b, &s); err != nil {
		return system{}, fmt.Errorf("%w: system: %w", provider.ErrProtocol, err)
	}
	return s, nil
}

// powerStates are all values of PowerState (DSP0268, Resource.PowerState), in lower case. A paused machine holds its
// power and its memory, so it is not off.
var powerStates = map[string]provider.PowerState{
	"on": provider.PowerOn, "paused": provider.PowerOn, "off": provider.PowerOff,
	"poweringon": provider.PowerTurningOn, "poweringoff": provider.PowerTurningOff,
}

// power is on or off only when nothing is under way.
func (s system) power() provider.PowerState {
	return cmp.Or(powerStates[strings.ToLower(strings.TrimSpace(s.PowerState.V))], provider.PowerUnknown)
}

func once(all []path, most int) (out []path) {
	for _, p := range all {
		if p != "" && len(out) < most && !slices.ContainsFunc(out, func(o path) bool { return plain(o) == plain(p) }) {
			out = append(out, p)
		}
	}
	return out
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
		if len(reset.Allowed.V) == 0 {
			return target, kind, true
		}
		if as, ok := reset.Allowed.V.find(kind); ok {
			return target, as, true
		}
	}
	return "", "", false
}

type ethernet struct{ MACAddress, PermanentMACAddress lenient[string] }

// macsOf are the addresses of an interface, as hwid.MAC returns them. A text that is no card's address is left out:
// ports that are absent have zeros, and InfiniBand's addresses are longer.
func macsOf(b []byte) (out []string) {
	var e ethernet
	if json.Unmarshal(b, &e) != nil {
		return nil
	}
	for _, text := range []string{e.MACAddress.V, e.PermanentMACAddress.V} {
		if mac, err := hwid.MAC(text); err == nil {
			out = append(out, mac)
		}
	}
	return out
}
