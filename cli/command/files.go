package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// ReadInput reads a file; "-" is standard input.
func (a *App) ReadInput(path string) ([]byte, error) {
	if path == "-" {
		raw, err := io.ReadAll(a.Config.In)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return raw, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return raw, nil
}

// ReadMessage reads a message from YAML or JSON with the field names of the .proto files. An unknown field is
// an error.
func (a *App) ReadMessage(path string, into proto.Message) error {
	raw, err := a.ReadInput(path)
	if err != nil {
		return err
	}
	var tree any
	if err := yaml.Unmarshal(raw, &tree); err != nil {
		return Invalidf("%s: %w", path, err)
	}
	if err := FromTree(tree, into); err != nil {
		return Invalidf("%s: %w", path, err)
	}
	return nil
}

// FromTree fills a message from a decoded YAML or JSON document.
func FromTree(tree any, into proto.Message) error {
	raw, err := json.Marshal(tree)
	if err != nil {
		return fmt.Errorf("not a document of fields: %w", err)
	}
	return protojson.Unmarshal(raw, into)
}
