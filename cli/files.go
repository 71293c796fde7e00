package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// readInput reads a file; "-" is standard input.
func (a *app) readInput(path string) ([]byte, error) {
	if path == "-" {
		raw, err := io.ReadAll(a.cfg.In)
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

// readMessage reads a message from YAML or JSON with the field names of the .proto files. An unknown field is
// an error.
func (a *app) readMessage(path string, into proto.Message) error {
	raw, err := a.readInput(path)
	if err != nil {
		return err
	}
	var tree any
	if err := yaml.Unmarshal(raw, &tree); err != nil {
		return invalidf("%s: %w", path, err)
	}
	if err := fromTree(tree, into); err != nil {
		return invalidf("%s: %w", path, err)
	}
	return nil
}

func fromTree(tree any, into proto.Message) error {
	raw, err := json.Marshal(tree)
	if err != nil {
		return fmt.Errorf("not a document of fields: %w", err)
	}
	return protojson.Unmarshal(raw, into)
}
