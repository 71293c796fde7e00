package webhook

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// ContentType is that of a CloudEvent in structured mode (CloudEvents 1.0, HTTP protocol binding, section 3.2).
const ContentType = "application/cloudevents+json; charset=utf-8"

// Event is something that has happened.
type Event struct {
	// ID is the same for all webhooks and all tries. It holds no full stop, which the signature uses between its parts.
	ID   string
	Type string
	// Subject is the id of the machine, the operation or the rollout, or the name of the site.
	Subject string
	// MachineID is empty for rollouts, sites and pings.
	MachineID string
	Time      time.Time
	// From and To are set where a phase, a node state or the state of a rollout has changed. Of a wave that has ended they
	// are its number and how many there are.
	From, To string
	// Data is the machine, the operation, the rollout or the site; nil for pings.
	Data proto.Message
}

// envelope has the attributes of CloudEvents 1.0, and ours as extensions.
type envelope struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            string          `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	MachineID       string          `json:"machineid,omitempty"`
	From            string          `json:"fromvalue,omitempty"`
	To              string          `json:"tovalue,omitempty"`
	Data            json.RawMessage `json:"data"`
}

var dataOut = protojson.MarshalOptions{UseProtoNames: true}

// Body writes an event as it is sent. source identifies an installation.
func Body(source string, e Event) ([]byte, error) {
	data := []byte("{}")
	if e.Data != nil {
		var err error
		if data, err = dataOut.Marshal(e.Data); err != nil {
			return nil, fmt.Errorf("serialize %s: %w", e.Type, err)
		}
	}
	b, err := json.Marshal(envelope{
		SpecVersion: "1.0", ID: e.ID, Source: source, Type: e.Type, Subject: e.Subject,
		Time: e.Time.UTC().Format(time.RFC3339Nano), DataContentType: "application/json", MachineID: e.MachineID,
		From: e.From, To: e.To, Data: data,
	})
	if err != nil {
		return nil, fmt.Errorf("serialize event: %w", err)
	}
	return b, nil
}
