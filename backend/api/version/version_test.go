package version

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// A build is named by the best that is known of it, and never by "devel".
func TestNameBuild(t *testing.T) {
	commit := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"},
		{Key: "vcs.modified", Value: "true"},
	}
	for _, c := range []struct {
		stamp, version string
		settings       []debug.BuildSetting
		want           string
	}{
		{"v1.2-3-gabc", "v9", commit, "v1.2-3-gabc"},
		{"", "v1.4.0", commit, "v1.4.0"},
		{"", "(devel)", commit, "0123456789ab-dirty"},
		{"", "", commit[:1], "0123456789ab"},
		{"", "(devel)", nil, ""},
	} {
		info := &debug.BuildInfo{
			Main:     debug.Module{Version: c.version},
			Settings: c.settings,
		}
		if got := nameBuild(c.stamp, info); got != c.want {
			t.Errorf("%q, %q: %q instead of %q", c.stamp, c.version, got, c.want)
		}
	}
}

func TestExecutableHasAName(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	id := readBuildID(path)
	sum := hashFile(path)
	if len(id) != buildChars || len(sum) != buildChars {
		t.Errorf("build id %q, hash %q", id, sum)
	}
	if v := nameExecutable(); v != "build-"+id {
		t.Errorf("%q instead of build-%s", v, id)
	}
	if readBuildID("version.go") != "" || hashFile("/no/such/file") != "" {
		t.Error("what is no program has a build id")
	}
}

func TestDescribe(t *testing.T) {
	got := Describe("falcon-x", []Format{{"hook", 6, 5}, {"launches", 2, 2}})
	if want := "falcon-x " + Own() + "\nformats: hook 6 (reads from 5), launches 2\n"; got != want {
		t.Errorf("%q instead of %q", got, want)
	}
	if strings.Contains(got, "devel") {
		t.Errorf("%q", got)
	}
}
