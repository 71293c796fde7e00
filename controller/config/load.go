package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Load reads the file over the defaults, then the environment, and validates. An empty path means defaults and
// environment only. Its error is of type Problems where the content is at fault. setup, if not nil, is called before
// validation: for what command-line flags say.
func Load(path string, setup func(*Config)) (*Config, error) {
	var file []byte
	if path != "" {
		var err error
		if file, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
	}
	c, problems := parse(file, os.LookupEnv, setup)
	if len(problems) > 0 {
		return nil, problems
	}
	return c, nil
}

func parse(file []byte, env func(string) (string, bool), setup func(*Config)) (*Config, Problems) {
	c := Default()
	problems := decode(file, c)
	problems = append(problems, c.override(env)...)
	if setup != nil {
		setup(c)
	}
	lines := keyLines(file)
	for _, p := range c.Validate() {
		p.Line = lines.of(p.Key)
		problems = append(problems, p)
	}
	return c, problems.sorted()
}

// decode goes on after a mistake, so that it finds all of them; a field with a mistake keeps its default.
func decode(file []byte, c *Config) Problems {
	d := yaml.NewDecoder(bytes.NewReader(file))
	d.KnownFields(true)
	err := d.Decode(c)
	var several *yaml.TypeError
	switch {
	case errors.As(err, &several):
		var out Problems
		for _, text := range several.Errors {
			out = append(out, explain(text))
		}
		return out
	case errors.Is(err, io.EOF): // nothing but comments
		return nil
	case err != nil:
		return Problems{explain(strings.TrimPrefix(err.Error(), "yaml: "))}
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return Problems{{Message: "there is more than one YAML document in the file"}}
	}
	return nil
}

var (
	linePrefix   = regexp.MustCompile(`^line (\d+): `)
	unknownField = regexp.MustCompile(`^field (.+) not found in type .*$`)
	wrongType    = regexp.MustCompile("^cannot unmarshal (!!\\w+)(?: `(.*)`)? into (.+)$")
)

// explain rewrites the messages of the YAML package, which speak of Go types.
func explain(text string) Problem {
	var p Problem
	if m := linePrefix.FindStringSubmatch(text); m != nil {
		p.Line, _ = strconv.Atoi(m[1]) // digits, and few: by the expression
		text = text[len(m[0]):]
	}
	p.Message = text
	if m := unknownField.FindStringSubmatch(text); m != nil {
		p.Message = fmt.Sprintf("unknown key %q", m[1])
	} else if m := wrongType.FindStringSubmatch(text); m != nil {
		p.Message = strings.TrimSpace(fmt.Sprintf("%s is not %s", quoted(m[2], m[1]), plainType(m[3])))
	}
	return p
}

func quoted(value, tag string) string {
	if value == "" {
		return map[string]string{"!!map": "a mapping", "!!seq": "a list", "!!str": "a string"}[tag]
	}
	return strconv.Quote(value)
}

func plainType(goType string) string {
	switch {
	case goType == "int":
		return "a whole number"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "a string"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	default:
		return "a mapping"
	}
}

// override reads the variables. Each wins over the file.
func (c *Config) override(env func(string) (string, bool)) Problems {
	var out Problems
	if v, ok := env("INGOT_DATABASE_URL"); ok {
		c.Database.URL = v
	}
	if v, ok := env("INGOT_LOG_LEVEL"); ok {
		c.Log.Level = v
	}
	if v, ok := env("INGOT_SECRET_KEY_FILE"); ok {
		c.SecretsKeyFile = v
	}
	if v, ok := env("INGOT_REFLECTION"); ok {
		on, err := strconv.ParseBool(v)
		if err != nil {
			out = append(out, Problem{Key: "INGOT_REFLECTION", Message: fmt.Sprintf("%q is not true or false", v)})
		}
		c.Reflection = on
	}
	return out
}

// lineIndex has the line of each key.
type lineIndex map[string]int

// of returns the line of the key or of the nearest one above it: a missing key is a fault of its section.
func (l lineIndex) of(key string) int {
	for key != "" {
		if line := l[key]; line > 0 {
			return line
		}
		cut := strings.LastIndexAny(key, ".[")
		if cut < 0 {
			return 0
		}
		key = key[:cut]
	}
	return 0
}

func keyLines(file []byte) lineIndex {
	out := lineIndex{}
	var doc yaml.Node
	if err := yaml.Unmarshal(file, &doc); err != nil || len(doc.Content) == 0 {
		return out // decode has told
	}
	out.add("", doc.Content[0])
	return out
}

func (l lineIndex) add(path string, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := strings.TrimPrefix(path+"."+n.Content[i].Value, ".")
			l[key] = n.Content[i].Line
			l.add(key, n.Content[i+1])
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			key := fmt.Sprintf("%s[%d]", path, i)
			l[key] = item.Line
			l.add(key, item)
		}
	}
}
