// Package guest is what runs in the machines that are measured from inside, and what they need from this host.
package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs returns programs of this host as /usr/bin/NAME, with the libraries that they ask for at the paths that these
// have here. The keys are as in image.Config.Files. Programs that ask for none are taken alone.
func Programs(ctx context.Context, names ...string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil, fmt.Errorf("find a program for the machine: %w", err)
		}
		sources := map[string]string{"/usr/bin/" + name: path}
		for _, library := range libraries(ctx, path) {
			sources[library] = library
		}
		for as, source := range sources {
			b, err := os.ReadFile(source)
			if err != nil {
				return nil, fmt.Errorf("take program %s: %w", name, err)
			}
			files[strings.TrimPrefix(as, "/")] = b
		}
	}
	return files, nil
}

// libraries asks ldd, which fails for programs that are static: those need none.
func libraries(ctx context.Context, path string) []string {
	out, err := exec.CommandContext(ctx, "ldd", path).Output()
	if err != nil {
		return nil
	}
	var found []string
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") && !strings.HasSuffix(word, ":") {
			found = append(found, word)
		}
	}
	return found
}

// makeExecutable is called in the machine: files of an initramfs are not executable, but for its init.
func makeExecutable() error {
	elsewhere := map[string]bool{"/proc": true, "/sys": true, "/dev": true, "/var": true}
	err := filepath.Walk("/", func(path string, info os.FileInfo, err error) error {
		switch {
		case err != nil:
			return err
		case info.IsDir() && elsewhere[path]:
			return filepath.SkipDir
		case info.Mode().IsRegular() && (strings.HasPrefix(path, "/usr/bin/") || strings.Contains(path, "lib")):
			return os.Chmod(path, 0o755)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("make programs executable: %w", err)
	}
	return nil
}
