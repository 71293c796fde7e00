package command

import (
	"bytes"
	"encoding/json"
	"errors"
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
	tree, err := Document(raw)
	if err == nil {
		err = FromTree(tree, into)
	}
	if err != nil {
		return Invalidf("%s: %w", path, err)
	}
	return nil
}

var errDocuments = errors.New(
	`more than one document: a line "---" begins another, which would be left out; give one ` +
		"file each",
)

// Document decodes the one document of a YAML or JSON file; nil for an empty one.
func Document(raw []byte) (tree any, err error) {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&tree); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !errors.Is(d.Decode(&yaml.Node{}), io.EOF) {
		return nil, errDocuments
	}
	return tree, nil
}

// FromTree fills a message from a decoded YAML or JSON document.
func FromTree(tree any, into proto.Message) error {
	raw, err := json.Marshal(tree)
	if err != nil {
		return fmt.Errorf("not a document of fields: %w", err)
	}
	return protojson.Unmarshal(raw, into)
}
