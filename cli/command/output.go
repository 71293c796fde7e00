package command

import (
	"encoding/json"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/encode"
	"github.com/ingot-metal/ingot/internal/safetext"
)

// Stream writes one message of a stream: a line of JSON, a YAML document, a name, or text.
func (a *App) Stream(m proto.Message, text func() string, name string) error {
	if a.path != nil {
		return a.Print(m, text, name)
	}
	switch a.Flags.Output {
	case "json":
		line, err := encode.Decoded(m)
		if err != nil {
			return err
		}
		return a.Write(string(line) + "\n")
	case "yaml":
		doc, err := encode.YAML(m)
		if err != nil {
			return err
		}
		return a.Write("---\n" + string(doc))
	case "name":
		return a.Write(safetext.Line(name) + "\n")
	}
	return a.Write(text())
}

// Print writes an answer in the form that --output asks for.
func (a *App) Print(m proto.Message, table func() string, names ...string) error {
	if a.path != nil {
		document, err := encode.Decoded(m)
		if err != nil {
			return err
		}
		return WriteJSON(a, document)
	}
	var out []byte
	var err error
	switch a.Flags.Output {
	case "json":
		out, err = encode.JSON(m)
	case "yaml":
		out, err = encode.YAML(m)
	case "name":
		for _, n := range names {
			out = append(out, safetext.Line(n)+"\n"...)
		}
	default:
		out = []byte(table())
	}
	if err != nil {
		return err
	}
	return a.Write(string(out))
}

// Write writes a text to Out.
func (a *App) Write(text string) error {
	if _, err := io.WriteString(a.Config.Out, text); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// WriteJSON writes a document in JSON, or what --output jsonpath=PATH selects from it.
func WriteJSON(a *App, document []byte) error {
	if a.path == nil {
		return a.Write(string(document) + "\n")
	}
	text, err := a.path.Select(document)
	if err != nil {
		return err
	}
	return a.Write(text)
}

// PrintJSON writes a document that is no message of the API, and reports whether --output wants one.
func PrintJSON(a *App, document any) (printed bool, err error) {
	if a.path == nil && a.Flags.Output != "json" {
		return false, nil
	}
	raw, err := json.Marshal(document)
	if err != nil {
		return true, fmt.Errorf("write JSON: %w", err)
	}
	return true, WriteJSON(a, raw)
}

// PrintMachine prints one machine.
func (a *App) PrintMachine(m *pb.Machine) error {
	return a.Print(m, func() string { return a.Style().Machine(m) }, m.GetMachineId())
}
