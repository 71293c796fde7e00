package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// stringAttempts are those whose weapon is text.
func stringAttempts() []Attempt {
	return []Attempt{
		{Party: Host, Attempt: "text that steers terminals and breaks parsers", Rule: 4, Run: hostileStrings},
		{Party: Admin, Attempt: "NUL in every text of every call", Rule: 5, Run: nulEverywhere},
	}
}

// hostileString is a window title, colours, a reordered line, a byte order mark, and separators that break YAML.
const hostileString = "x\x1b]0;owned\x07\u009b31m\u202egnp\u2066\ufeff\u2028\u0085\x7fy"

// readsAlike bounds the reads of a list that changes in between.
const readsAlike = 20

// steers reports whether a terminal obeys a character, or a parser of YAML refuses it.
func steers(r rune) bool {
	return r != '\n' && (unicode.IsControl(r) || strings.ContainsRune("\u202e\u2066\ufeff\u2028", r))
}

// hostileStrings has an agent report such text wherever its protocol takes text. A reader lists the fleet in each form.
func hostileStrings(ctx context.Context, r *Rig) (Outcome, error) {
	cert, m, err := r.stolen()
	if err != nil {
		return Outcome{}, err
	}
	cfg := r.TLS()
	cfg.Certificates = append(cfg.Certificates, cert)
	conn, err := grpc.NewClient("passthrough:///"+r.Addresses().Fleet,
		grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		return Outcome{}, err
	}
	defer conn.Close()
	boot := r.C.Machine(m.ID).GetStatus().GetBootId()
	if err := reportHostile(ctx, fleetv1.NewAgentServiceClient(conn), boot); err != nil {
		return Outcome{}, err
	}
	shown := 0
	reads := [][]string{{"list"}, {"machine", "get", m.ID}, {"machine", "inventory", m.ID}, {"agent", "list"}}
	for _, args := range reads {
		out := map[string]string{}
		for _, output := range []string{"table", "wide", "json", "yaml", "name"} {
			code, text := r.C.IngotWith(ctx, "", append(args, "-o", output)...)
			if out[output] = text; code != 0 {
				return breached("ingot %s -o %s ends with %d: %s", args, output, code, text), nil
			}
			if i := strings.IndexFunc(out[output], steers); i >= 0 {
				return breached("ingot %s -o %s writes %q", args, output, out[output][i]), nil
			}
			if strings.Contains(out[output], "owned") {
				shown++
			}
		}
		var fromYAML, fromJSON any
		if err := json.Unmarshal([]byte(out["json"]), &fromJSON); err != nil {
			return breached("ingot %s -o json does not parse: %v", args, err), nil
		}
		if err := yaml.Unmarshal([]byte(out["yaml"]), &fromYAML); err != nil {
			return breached("ingot %s -o yaml does not parse: %v", args, err), nil
		}
		// An agent that was heard between the two has another time in the second: it is read again.
		for again := 0; fmt.Sprint(fromJSON) != fmt.Sprint(fromYAML) && !reflect.DeepEqual(fromJSON, fromYAML); again++ {
			if again == readsAlike {
				return breached("ingot %s has other data in YAML than in JSON", args), nil
			}
			_, text := r.C.IngotWith(ctx, "", append(args, "-o", "json")...)
			_, marks := r.C.IngotWith(ctx, "", append(args, "-o", "yaml")...)
			fromJSON, fromYAML = nil, nil
			if err := errors.Join(
				json.Unmarshal([]byte(text), &fromJSON),
				yaml.Unmarshal([]byte(marks), &fromYAML),
			); err != nil {
				return Outcome{}, err
			}
		}
	}
	if shown == 0 {
		return Outcome{}, errors.New("no answer holds what the agent reported")
	}
	return held("the fleet is listed in every form; %d outputs show the text cleaned", shown), nil
}

// reportHostile sends Hello and reports an inventory, with the text in each.
func reportHostile(ctx context.Context, agent fleetv1.AgentServiceClient, boot string) error {
	commands, err := agent.Commands(ctx)
	if err != nil {
		return err
	}
	hello := &fleetv1.Hello{StateId: "st-hostile", BootId: boot, HardwareFingerprint: "hostile", Version: hostileString,
		Hostname: hostileString, Region: hostileString, Capabilities: []string{hostileString}}
	if err := commands.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: hello}}); err != nil {
		return err
	}
	first, err := commands.Recv()
	if err != nil {
		return err
	}
	events, err := agent.Events(ctx)
	if err != nil {
		return err
	}
	w := first.GetWelcome()
	document, err := json.Marshal(map[string]any{"system": map[string]string{"vendor": hostileString}, hostileString: "k"})
	if err != nil {
		return err
	}
	for _, m := range []*fleetv1.EventsRequest{
		{Message: &fleetv1.EventsRequest_Hello{Hello: &fleetv1.EventsHello{SessionId: w.GetSessionId(), Epoch: w.GetEpoch()}}},
		{Message: &fleetv1.EventsRequest_Event{Event: &fleetv1.Event{Seq: 1,
			Body: &fleetv1.Event_Inventory{Inventory: &fleetv1.InventoryReport{Document: document, Hash: hostileString}}}}},
	} {
		if err := events.Send(m); err != nil {
			return err
		}
	}
	_, err = events.Recv() // the acknowledgement: it is stored
	return err
}

// nulEverywhere calls every method once for each of its texts, with NUL in that one.
func nulEverywhere(ctx context.Context, r *Rig) (Outcome, error) {
	calls := 0
	methods := methodsOf(auth.NeedRead, auth.NeedCaller, auth.NeedOwn, auth.NeedOperate, auth.NeedReport, auth.NeedApprove,
		auth.NeedAdmin)
	for _, method := range methods {
		d, err := described(method)
		if err != nil {
			return Outcome{}, err
		}
		for at, in := range testkit.EachText(d.Input(), "a\x00b") {
			calls++
			once, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := call(once, r.C.Client, method, in, func(proto.Message) {})
			cancel()
			if status.Code(err) != codes.InvalidArgument {
				return breached("%s with NUL in %s: %v", method, at, err), nil
			}
		}
	}
	return held("%d calls of %d methods are refused as invalid", calls, len(methods)), nil
}
