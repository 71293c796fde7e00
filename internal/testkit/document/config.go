package document

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// ConfigKeys describes the keys of a configuration struct: each with its default and the comment of its field.
func ConfigKeys(t *testing.T, defaults any) string {
	t.Helper()
	r := keyReader{t: t, root: Root(t), comments: map[string]map[string]string{}}
	r.read("", reflect.ValueOf(defaults))
	return Table([]string{"key", "default", "meaning"}, r.rows)
}

type keyReader struct {
	t    *testing.T
	root string
	// comments are those of fields, by package path and by Type.Field.
	comments map[string]map[string]string
	rows     [][]string
}

func (r *keyReader) read(prefix string, v reflect.Value) {
	shared := "" // Several fields below one comment stand together.
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag := f.Tag.Get("yaml")
		if tag == "" || tag == "-" {
			continue
		}
		comment := r.comment(v.Type(), f.Name)
		if comment == "" {
			comment = shared
		}
		shared = comment
		if f.Type.Kind() == reflect.Struct {
			r.rows = append(r.rows, []string{"`" + prefix + tag + "`", "", comment})
			r.read(prefix+tag+".", v.Field(i))
			continue
		}
		value := ""
		if !v.Field(i).IsZero() {
			value = fmt.Sprintf("`%v`", v.Field(i).Interface())
		}
		r.rows = append(r.rows, []string{"`" + prefix + tag + "`", value, comment})
	}
}

func (r *keyReader) comment(typ reflect.Type, field string) string {
	all, ok := r.comments[typ.PkgPath()]
	if !ok {
		all = r.fieldComments(typ.PkgPath())
		r.comments[typ.PkgPath()] = all
	}
	return all[typ.Name()+"."+field]
}

// fieldComments parses the source of a package of this module.
func (r *keyReader) fieldComments(pkg string) map[string]string {
	_, dir, _ := strings.Cut(pkg, "/ingot/")
	files, err := filepath.Glob(filepath.Join(r.root, dir, "*.go"))
	if err != nil || len(files) == 0 {
		r.t.Fatalf("no source of %s: %v", pkg, err)
	}
	out := map[string]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			r.t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range fields.Fields.List {
				for _, name := range f.Names {
					out[spec.Name.Name+"."+name.Name] = strings.TrimSpace(f.Doc.Text())
				}
			}
			return true
		})
	}
	return out
}

// Constants lists the string constants of a type, each with its value and its comment without the name at its start.
func Constants(t *testing.T, dir, typ string) (rows [][]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Root(t), dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			name, ok := spec.Type.(*ast.Ident)
			value, isLiteral := spec.Values[0].(*ast.BasicLit)
			if ok && isLiteral && name.Name == typ && spec.Doc != nil {
				_, meaning, _ := strings.Cut(strings.TrimSpace(spec.Doc.Text()), " ")
				rows = append(rows, []string{"`" + strings.Trim(value.Value, `"`) + "`", strings.TrimPrefix(meaning, "is ")})
			}
			return true
		})
	}
	if len(rows) == 0 {
		t.Fatalf("no constants of type %s in %s", typ, dir)
	}
	return rows
}

// CommentedKeys reads a map literal: the comment above each line, by the line's key.
func CommentedKeys(t *testing.T, dir, variable string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Root(t), dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, path := range files {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		above := map[int]string{} // comments by the line that follows
		for _, c := range file.Comments {
			above[fset.Position(c.End()).Line+1] = strings.TrimSpace(c.Text())
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Names[0].Name != variable {
				return true
			}
			for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
				key := e.(*ast.KeyValueExpr).Key.(*ast.BasicLit)
				if c := above[fset.Position(key.Pos()).Line]; c != "" {
					out[strings.Trim(key.Value, `"`)] = c
				}
			}
			return false
		})
	}
	return out
}
