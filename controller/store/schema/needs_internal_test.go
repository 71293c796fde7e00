package schema

import (
	"testing"
	"testing/fstest"
)

func TestWhatMigrationsNeed(t *testing.T) {
	files := fstest.MapFS{}
	put := func(name, sql string) {
		files[name+".up.sql"] = &fstest.MapFile{Data: []byte(sql)}
		files[name+".down.sql"] = &fstest.MapFile{}
	}
	put("0001_a", "CREATE TABLE a ();\n-- needs: 7 is no first line\n")
	put("0002_b", "-- needs: 1\nALTER TABLE a DROP COLUMN b;\n")
	put("0003_c", "SELECT 1;\n")
	all, err := loadMigrations(files)
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range []int{0, 0, 1, 1} {
		if got := needsAt(all, version); got != want {
			t.Errorf("version %d needs %d, not %d", version, got, want)
		}
	}
	put("0004_d", "-- needs: the last\n")
	if _, err := loadMigrations(files); err == nil {
		t.Error("a need that is no number is taken")
	}
}
