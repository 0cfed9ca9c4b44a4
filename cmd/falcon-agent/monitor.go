package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// pluginName is the profiler plug-in's file, beside the hook.
	pluginName = "libnccl-profiler-falcon.so"
	// pluginVariable names the one profiler plug-in that NCCL loads.
	pluginVariable = "NCCL_PROFILER_PLUGIN"
	// pluginPathMost is what NCCL takes of a path; it cuts a longer one.
	pluginPathMost = 255
	// pluginNCCL is the first NCCL that shows a plug-in each call where it is made: 2.28.
	pluginNCCL = 22800
)

// watchers are the libraries that watch a process; each may be "".
type watchers struct{ hook, plugin string }

// monitoringBy is what watches a job that is never to be held: the plug-in alone
// where every NCCL that the command may load is known to serve it, else the hook.
// Where none is known the plug-in comes beside it, for an NCCL that passes by the hook.
func monitoringBy(hook, plugin string, versions []int) watchers {
	older := func(v int) bool { return v > 0 && v < pluginNCCL }
	newer := func(v int) bool { return v >= pluginNCCL }
	switch known := len(versions) > 0 && !slices.Contains(versions, 0); {
	case plugin == "" || known && !slices.ContainsFunc(versions, newer):
		return watchers{hook: hook}
	case known && !slices.ContainsFunc(versions, older):
		return watchers{plugin: plugin}
	}
	return watchers{hook, plugin}
}

// pluginBeside is the plug-in in the hook's folder; "" where there is none that NCCL
// can load, or the job has one of its own.
func pluginBeside(hook, own string) string {
	path := filepath.Join(filepath.Dir(hook), pluginName)
	info, err := os.Stat(path)
	if err != nil ||
		!info.Mode().IsRegular() ||
		len(path) >= pluginPathMost ||
		own != "" && own != path {
		return ""
	}
	return path
}

// parseNCCL is 22809 of "2.28.9", 0 of anything else.
func parseNCCL(text string) int {
	v := 0
	parts := strings.Split(text, ".")
	if len(parts) != 2 && len(parts) != 3 {
		return 0
	}
	scale := 10000
	for _, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > 99 {
			return 0
		}
		v += n * scale
		scale /= 100
	}
	return v
}

var (
	ncclFile  = regexp.MustCompile(`^libnccl\.so\.(\d+\.\d+\.\d+)$`)
	ncclWheel = regexp.MustCompile(`^nvidia_nccl_cu\d+-(\d+\.\d+\.\d+)(?:\.post\d+)?\.dist-info$`)
)

// ncclVersions are the versions of every NCCL that the command may load, by the names
// of files: in the folders of LD_LIBRARY_PATH and of the system under root, and as
// wheels of its Python. One whose name has no version is 0.
func ncclVersions(root, command string, variable func(string) string) []int {
	var out []int
	libraries := filepath.SplitList(variable("LD_LIBRARY_PATH"))
	for _, dir := range [...]string{
		"usr/lib/*-linux-gnu",
		"usr/lib64",
		"usr/local/lib",
		"usr/local/cuda/lib64",
	} {
		libraries = append(libraries, filepath.Join(root, dir))
	}
	for _, dir := range libraries {
		files, _ := filepath.Glob(filepath.Join(dir, "libnccl.so.2"))
		for _, f := range files {
			target, err := filepath.EvalSymlinks(f)
			if err == nil {
				out = append(out, versionIn(ncclFile, target))
			}
		}
	}
	for _, prefix := range [...]string{
		variable("VIRTUAL_ENV"),
		variable("CONDA_PREFIX"),
		filepath.Dir(filepath.Dir(command)),
	} {
		for _, packages := range [...]string{
			"lib/python3*/site-packages",
			"lib/python3*/dist-packages",
			"local/lib/python3*/dist-packages",
		} {
			wheels, _ := filepath.Glob(filepath.Join(prefix, packages, "nvidia_nccl_cu*.dist-info"))
			for _, w := range wheels {
				out = append(out, versionIn(ncclWheel, w))
			}
		}
	}
	return out
}

func versionIn(pattern *regexp.Regexp, path string) int {
	m := pattern.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return 0
	}
	return parseNCCL(m[1])
}
