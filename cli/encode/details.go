package encode

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// unseen are keys of an audit row's data that its other columns show, or that are of use to programs alone.
var unseen = []string{"identity", "source_address", "subject"}

// Details are an audit row's data as people read it: the comment first, then the other values by their keys. Data that
// is no object has none.
func Details(data []byte) string {
	var values map[string]any
	if json.Unmarshal(data, &values) != nil {
		return ""
	}
	var parts []string
	if comment, ok := values["comment"].(string); ok && comment != "" {
		parts = append(parts, strconv.Quote(comment))
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text, isText := values[key].(string)
		switch {
		case key == "comment" || slices.Contains(unseen, key) || isText && text == "":
			continue
		case !isText:
			raw, err := json.Marshal(values[key])
			if err != nil {
				continue // it was decoded from JSON
			}
			text = string(raw)
		}
		parts = append(parts, key+"="+text)
	}
	return strings.Join(parts, " ")
}
