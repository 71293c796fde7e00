package safetext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// Message cleans every string of m in place, those of maps' keys, lists and nested messages included. Bytes stay as
// they are.
func Message(m proto.Message) {
	if m != nil {
		message(m.ProtoReflect())
	}
}

func message(m protoreflect.Message) {
	if a, ok := m.Interface().(*anypb.Any); ok { // its bytes are a message of their own
		if inner, err := a.UnmarshalNew(); err == nil {
			Message(inner)
			_ = a.MarshalFrom(inner) // it was read from the same bytes
		}
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			cleanMap(f, v.Map())
		case f.IsList():
			cleanList(f, v.List())
		case f.Message() != nil:
			message(v.Message())
		case f.Kind() == protoreflect.StringKind:
			if s := v.String(); Clean(s) != s {
				m.Set(f, protoreflect.ValueOfString(Clean(s)))
			}
		}
		return true
	})
}

func cleanList(f protoreflect.FieldDescriptor, list protoreflect.List) {
	for i := range list.Len() {
		switch v := list.Get(i); {
		case f.Message() != nil:
			message(v.Message())
		case f.Kind() == protoreflect.StringKind:
			list.Set(i, protoreflect.ValueOfString(Clean(v.String())))
		default:
			return
		}
	}
}

func cleanMap(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	type entry struct{ old, key, value protoreflect.Value }
	var dirty []entry
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		key := k.Value()
		if f.MapKey().Kind() == protoreflect.StringKind {
			key = protoreflect.ValueOfString(Clean(k.String()))
		}
		switch {
		case f.MapValue().Message() != nil:
			message(v.Message())
		case f.MapValue().Kind() == protoreflect.StringKind:
			if text := Clean(v.String()); text != v.String() || key.String() != k.String() {
				dirty = append(dirty, entry{k.Value(), key, protoreflect.ValueOfString(text)})
			}
			return true
		}
		if key.String() != k.String() {
			dirty = append(dirty, entry{k.Value(), key, v})
		}
		return true
	})
	for _, e := range dirty { // a map must not change while it is read
		m.Clear(e.old.MapKey())
		m.Set(e.key.MapKey(), e.value)
	}
}

// Find returns the path of the first string of m, keys of maps included, that bad refuses, and the empty string where
// there is none. bad is called with the field's full name and the text.
func Find(m proto.Message, bad func(field protoreflect.FullName, text string) bool) string {
	return find(m.ProtoReflect(), "", bad)
}

func find(m protoreflect.Message, at string, bad func(protoreflect.FullName, string) bool) (found string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := string(f.Name())
		if at != "" {
			path = at + "." + path
		}
		of := func(f protoreflect.FieldDescriptor, name protoreflect.FullName, path string, v protoreflect.Value) {
			switch {
			case found != "":
			case f.Message() != nil:
				found = find(v.Message(), path, bad)
			case f.Kind() == protoreflect.StringKind && bad(name, v.String()):
				found = path
			}
		}
		switch {
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				of(f.MapKey(), f.FullName(), path, k.Value())
				of(f.MapValue(), f.FullName(), path+"["+Bounded(k.String(), mostKey)+"]", v)
				return found == ""
			})
		case f.IsList():
			for i := range v.List().Len() {
				of(f, f.FullName(), fmt.Sprintf("%s[%d]", path, i), v.List().Get(i))
			}
		default:
			of(f, f.FullName(), path, v)
		}
		return found == ""
	})
	return found
}

// mostKey bounds a map's key in a path, in characters.
const mostKey = 64

// mostDepth bounds how deep a JSON document is nested.
const mostDepth = 1000

// escapes are those of JSON that may stand for a character that steers a terminal.
var escapes = regexp.MustCompile(`\\[bfru]`)

// JSON cleans every string of a JSON document, keys included. Numbers keep their digits, and objects the order of
// their keys.
func JSON(document []byte) ([]byte, error) {
	if !escapes.Match(document) && !bytes.ContainsFunc(document, suspicious) {
		return document, nil
	}
	dec := json.NewDecoder(bytes.NewReader(document))
	dec.UseNumber()
	c := cleaner{dec: dec}
	err := c.value(0)
	if err == nil && dec.More() {
		err = errors.New("more than one document")
	}
	if err != nil {
		return nil, fmt.Errorf("clean JSON: %w", err)
	}
	return c.out.Bytes(), nil
}

type cleaner struct {
	dec *json.Decoder
	out bytes.Buffer
}

func (c *cleaner) value(depth int) error {
	token, err := c.dec.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case json.Delim:
		return c.collection(t, depth+1)
	case string:
		token = Clean(t)
	}
	raw, err := json.Marshal(token)
	c.out.Write(raw)
	return err
}

func (c *cleaner) collection(open json.Delim, depth int) error {
	if depth > mostDepth {
		return fmt.Errorf("nested more than %d deep", mostDepth)
	}
	c.out.WriteByte(byte(open))
	for n := 0; c.dec.More(); n++ {
		if n > 0 {
			c.out.WriteByte(',')
		}
		if open == '{' {
			if err := c.value(depth); err != nil { // a key, which the decoder holds to be a string
				return err
			}
			c.out.WriteByte(':')
		}
		if err := c.value(depth); err != nil {
			return err
		}
	}
	end, err := c.dec.Token()
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(&c.out, end)
	return err
}
