package invariants

import (
	"fmt"
	"go/doc"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/testkit/document"
)

// drawing is one picture of packages.md: the packages below some folders, each in the node that holds it.
type drawing struct {
	title, about string
	// node returns the node of a package, empty if the package is not in the picture.
	node func(dir string) string
}

// TestReferencePackages draws the code from its imports, from far to near, with one line on each package.
func TestReferencePackages(t *testing.T) {
	var b strings.Builder
	b.WriteString("Drawn from the imports of the code. An arrow goes from the importer; one that follows from others is " +
		"left out.\n[Architecture](../explanation/architecture.md) explains the parts.\n")
	packages := listPackages(t)
	for _, d := range []drawing{
		{"Programs and their parts", "What each program is made of. `internal` and `api` are below all of them.", programNode},
		{"The controller", "Folders with one purpose are one box.", folderNode("controller",
			"controller/store", "controller/domain", "controller/limit", "controller/catalog")},
		{"The controller's decisions", "Data in, decision out: no I/O and no clock.", folderNode("controller/domain")},
		{"The controller's store", "Layers: each imports only those below it.", folderNode("controller/store")},
		{"The agent", "What it can do is below what it is told.", folderNode("agent", "agent/executor", "agent/provider",
			"agent/site", "agent/host", "agent/disk")},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```mermaid\nflowchart TD\n%s```\n", d.title, d.about, d.draw(packages))
	}
	b.WriteString("\n## Each package\n\n" + document.Table([]string{"package", "what it is"}, packageTexts(t)))
	document.Check(t, "packages.md", "Packages", b.String())
}

// programNode puts a package into its program or into its folder at the top of the tree.
func programNode(dir string) string {
	top, _, _ := strings.Cut(dir, "/")
	switch top {
	case "cmd":
		return dir
	case "controller", "agent", "cli", "imagebuild", "lab":
		return top
	}
	return ""
}

// folderNode puts a package below a folder into a box of its own, or into one of the whole folders.
func folderNode(below string, whole ...string) func(string) string {
	return func(dir string) string {
		if dir != below && !strings.HasPrefix(dir, below+"/") || strings.HasSuffix(dir, "test") {
			return ""
		}
		for _, w := range whole {
			if dir == w || strings.HasPrefix(dir, w+"/") {
				return w
			}
		}
		return dir
	}
}

func (d drawing) draw(packages map[string]listedPackage) string {
	edges := map[string]map[string]bool{}
	for _, pkg := range packages {
		from := d.node(short(pkg.ImportPath))
		if from == "" {
			continue
		}
		if edges[from] == nil {
			edges[from] = map[string]bool{}
		}
		for _, imported := range pkg.Imports {
			if to := d.node(short(imported)); to != "" && to != from && strings.HasPrefix(imported, module) {
				edges[from][to] = true
			}
		}
	}
	var b strings.Builder
	id := strings.NewReplacer("/", "_", "-", "_")
	for _, from := range slices.Sorted(maps.Keys(edges)) {
		fmt.Fprintf(&b, "    %s[%s]\n", id.Replace(from), from)
	}
	for _, from := range slices.Sorted(maps.Keys(edges)) {
		for _, to := range slices.Sorted(maps.Keys(edges[from])) {
			if !longWay(edges, from, to) {
				fmt.Fprintf(&b, "    %s --> %s\n", id.Replace(from), id.Replace(to))
			}
		}
	}
	return b.String()
}

// longWay reports whether an arrow follows from others: one leads from its start to its end over a third node.
func longWay(edges map[string]map[string]bool, from, to string) bool {
	seen := map[string]bool{}
	var reaches func(string) bool
	reaches = func(at string) bool {
		if at == to {
			return true
		}
		if seen[at] {
			return false
		}
		seen[at] = true
		for next := range edges[at] {
			if next != from && reaches(next) {
				return true
			}
		}
		return false
	}
	for next := range edges[from] {
		if next != to && reaches(next) {
			return true
		}
	}
	return false
}

// packageTexts reads the first sentence of each package's comment.
func packageTexts(t *testing.T) (rows [][]string) {
	texts := map[string]string{}
	for _, f := range handWritten(t) {
		top, _, _ := strings.Cut(f.dir, "/")
		if f.syntax.Doc != nil && slices.Contains([]string{"controller", "agent", "cli", "imagebuild", "internal"}, top) {
			texts[f.dir] = new(doc.Package).Synopsis(f.syntax.Doc.Text())
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(texts)) {
		text := strings.TrimPrefix(texts[dir], "Package "+path.Base(dir)+" ")
		rows = append(rows, []string{"[" + dir + "](../../" + dir + ")", text})
	}
	return rows
}
