package apijson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxDepth is more than any message of the API has, and little enough for the stack.
const maxDepth = 64

// parse reads one JSON document. Unlike encoding/json it refuses a key that stands twice in an object, as protojson
// does: of two values for one field either may be meant.
func parse(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := next(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one JSON document")
	}
	return v, nil
}

func next(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, notJSON(err)
	}
	switch t {
	case json.Delim('{'):
		return object(d, depth)
	case json.Delim('['):
		return array(d, depth)
	}
	return t, nil
}

func object(d *json.Decoder, depth int) (any, error) {
	out := map[string]any{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		key, ok := t.(string)
		if !ok {
			return nil, fmt.Errorf("not JSON: %v is no name", t)
		}
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("%q stands twice in one object", key)
		}
		if out[key], err = next(d, depth+1); err != nil {
			return nil, err
		}
	}
	return out, end(d)
}

func array(d *json.Decoder, depth int) (any, error) {
	out := []any{}
	for d.More() {
		v, err := next(d, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, end(d)
}

// end reads the bracket that closes what More has found the end of.
func end(d *json.Decoder) error {
	if _, err := d.Token(); err != nil {
		return notJSON(err)
	}
	return nil
}

func notJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("not JSON: it ends early")
	}
	return fmt.Errorf("not JSON: %w", err)
}
