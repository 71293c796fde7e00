package gateway

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/node"
)

// nodeHistory is the JSON of a node's history. It differs from that of the message: states have their stored names,
// absent values are null, and numbers are numbers.
type nodeHistory struct {
	Data  []historyLine `json:"data"`
	Total int32         `json:"total"`
}

// historyLine is one change of a node's state.
type historyLine struct {
	// ID is a UUID.
	ID          string         `json:"id"`
	FromState   string         `json:"from_state"`
	ToState     string         `json:"to_state"`
	TriggeredBy string         `json:"triggered_by"`
	UserID      *string        `json:"user_id"`
	Comment     *string        `json:"comment"`
	Metadata    map[string]any `json:"metadata"`
	// CreatedAt is RFC 3339 in UTC.
	CreatedAt string `json:"created_at"`
}

func marshalHistory(m *baremetalv1.GetNodeHistoryResponse) ([]byte, error) {
	out := nodeHistory{Data: []historyLine{}, Total: m.GetTotal()}
	for _, l := range m.GetData() {
		out.Data = append(out.Data, historyLine{
			ID: l.GetUuid(), FromState: node.Name(l.GetFromState()), ToState: node.Name(l.GetToState()),
			TriggeredBy: l.GetTriggeredBy(),
			UserID:      orNull(l.GetUserId()), Comment: orNull(l.GetComment()), Metadata: metadataOf(l.GetMetadata()),
			CreatedAt: l.GetCreatedAt().AsTime().Format(time.RFC3339Nano),
		})
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("write history: %w", err)
	}
	return raw, nil
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// numbers are the keys of a line's metadata that count something.
var numbers = map[string]bool{"attempt": true}

// metadataOf is nil, and so null, where a line has no metadata.
func metadataOf(m map[string]string) map[string]any {
	if len(m) == 0 {
		return nil
	}
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && numbers[k] {
			out[k] = n
		}
	}
	return out
}
