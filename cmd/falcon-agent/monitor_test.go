package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The plug-in comes alone only where every NCCL is known to serve it; an unknown one
// never goes without the hook.
func TestMonitoringBy(t *testing.T) {
	const hook, plugin = "/lib/h.so", "/lib/p.so"
	for _, c := range []struct {
		plugin   string
		versions []int
		want     watchers
	}{
		{plugin, []int{22809}, watchers{plugin: plugin}},
		{plugin, []int{22800, 23007}, watchers{plugin: plugin}},
		{plugin, []int{22706}, watchers{hook: hook}},
		{plugin, []int{0}, watchers{hook, plugin}},
		{plugin, []int{21805, 22809}, watchers{hook, plugin}},
		{plugin, []int{22809, 0}, watchers{hook, plugin}},
		{plugin, nil, watchers{hook, plugin}},
		{"", []int{22809}, watchers{hook: hook}},
		{"", nil, watchers{hook: hook}},
	} {
		if got := monitoringBy(hook, c.plugin, c.versions); got != c.want {
			t.Errorf("plug-in %q, versions %v: %v, want %v", c.plugin, c.versions, got, c.want)
		}
	}
}

func TestPluginBeside(t *testing.T) {
	dir := t.TempDir()
	hook := filepath.Join(dir, hookName)
	plugin := filepath.Join(dir, pluginName)
	if got := pluginBeside(hook, ""); got != "" {
		t.Errorf("found %q, which is not there", got)
	}
	writeTestFile(t, plugin)
	deep := filepath.Join(dir, strings.Repeat("d", 250))
	writeTestFile(t, filepath.Join(deep, pluginName))
	for _, c := range []struct{ hook, own, want string }{
		{hook, "", plugin},
		{hook, plugin, plugin},
		{hook, "inspector", ""},
		{filepath.Join(deep, hookName), "", ""},
	} {
		if got := pluginBeside(c.hook, c.own); got != c.want {
			t.Errorf("beside %s, with %q: %q, want %q", c.hook, c.own, got, c.want)
		}
	}
}

// Every NCCL that the command may load counts, and the version is in a file's name.
func TestNCCLVersions(t *testing.T) {
	root := t.TempDir()
	venv := t.TempDir()
	system := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	bare := filepath.Join(root, "opt")
	writeTestFile(t, filepath.Join(system, "libnccl.so.2.29.2"))
	writeTestFile(t, filepath.Join(bare, "libnccl.so.2"))
	if err := os.Symlink("libnccl.so.2.29.2", filepath.Join(system, "libnccl.so.2")); err != nil {
		t.Fatal(err)
	}
	packages := filepath.Join(venv, "lib/python3.12/site-packages")
	writeTestFile(t, filepath.Join(packages, "nvidia_nccl_cu12-2.28.9.dist-info", "METADATA"))
	writeTestFile(t, filepath.Join(packages, "nvidia_nccl_cu13-2.30.7.post1.dist-info", "METADATA"))
	for _, c := range []struct {
		command string
		env     map[string]string
		want    []int
	}{
		{"/usr/bin/true", nil, []int{22902}},
		{filepath.Join(venv, "bin", "python"), nil, []int{22809, 22902, 23007}},
		{"/usr/bin/srun", map[string]string{"VIRTUAL_ENV": venv}, []int{22809, 22902, 23007}},
		{"/usr/bin/true", map[string]string{"LD_LIBRARY_PATH": "/nowhere:" + bare}, []int{0, 22902}},
	} {
		got := ncclVersions(root, c.command, func(name string) string {
			return c.env[name]
		})
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s, %v: %v, want %v", c.command, c.env, got, c.want)
		}
	}
}

func TestParseNCCL(t *testing.T) {
	for text, want := range map[string]int{
		"2.28.9": 22809, "2.28": 22800, "2.30.7": 23007, "": 0, "2": 0, "2.x.1": 0, "2.28.9.1": 0,
		"-2.1.1": 0,
	} {
		if got := parseNCCL(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// Without the hook nothing is preloaded but what was.
func TestPluginEnvironment(t *testing.T) {
	for _, c := range []struct {
		before []string
		by     watchers
		want   []string
	}{
		{[]string{"A=1"}, watchers{plugin: "/p.so"}, []string{"A=1", "NCCL_PROFILER_PLUGIN=/p.so"}},
		{
			[]string{"LD_PRELOAD=/x.so", "NCCL_PROFILER_PLUGIN=/p.so"},
			watchers{plugin: "/p.so"},
			[]string{"NCCL_PROFILER_PLUGIN=/p.so", "LD_PRELOAD=/x.so"},
		},
		{
			[]string{"A=1"},
			watchers{"/h.so", "/p.so"},
			[]string{"A=1", "NCCL_PROFILER_PLUGIN=/p.so", "LD_PRELOAD=/h.so"},
		},
		{
			[]string{"NCCL_PROFILER_PLUGIN=own"},
			watchers{hook: "/h.so"},
			[]string{"NCCL_PROFILER_PLUGIN=own", "LD_PRELOAD=/h.so"},
		},
	} {
		if got := environment(c.before, c.by, ""); !slices.Equal(got, c.want) {
			t.Errorf("%v, %v: %v, want %v", c.before, c.by, got, c.want)
		}
	}
}

func writeTestFile(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}
