package hollow

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrBuild is wrapped by errors of making the libraries.
var ErrBuild = errors.New("hollow: can't make the stand-ins")

// archives are the lab's own stand-ins, by the beginning of the library's soname.
var archives = map[string]string{
	"libcudart.so":   "cudart.a",
	"libcublas.so":   "cublas.a",
	"libcublasLt.so": "cublasLt.a",
	"libnccl.so":     "nccl.a",
}

// refusals are what a function that is not emulated returns, by the beginning of the library's
// soname: an error in its own terms. Others return 1, which is an error in all of them.
var refusals = map[string]int{"libnccl.so": 5, "libcurand.so": 102}

// quiet are the libraries whose functions only observe: an absent one is no news for the user.
var quiet = []string{"libcupti.so", "libnvshmem_host.so", "libcufile.so"}

// Build makes the stand-ins for the installation in torch, a package folder, from the archives in
// lib, and returns the folder that they are in, below cache, and their names in the order in which
// they must be loaded. What was made before is used again.
func Build(torch, lib, cache string) (folder string, names []string, err error) {
	im, err := readWheel(torch)
	if err != nil {
		return "", nil, err
	}
	im.addDriver()
	key, err := im.fingerprint(torch, lib)
	if err != nil {
		return "", nil, err
	}
	folder = filepath.Join(cache, key)
	names = im.loadOrder()
	if _, err := os.Stat(folder); err == nil {
		return folder, names, nil
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrBuild, err)
	}
	draft, err := os.MkdirTemp(cache, "draft-")
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrBuild, err)
	}
	defer os.RemoveAll(draft)
	for _, name := range names {
		if err := im.makeLibrary(name, lib, draft); err != nil {
			return "", nil, err
		}
	}
	if err := makeOperators(torch, lib, draft); err != nil {
		return "", nil, err
	}
	if err := os.Rename(draft, folder); err != nil && !errors.Is(err, os.ErrExist) {
		if _, there := os.Stat(folder); there != nil { // another process was faster
			return "", nil, fmt.Errorf("%w: %w", ErrBuild, err)
		}
	}
	return folder, names, nil
}

// Preload is the value of LD_PRELOAD for what Build returned.
func Preload(folder string, names []string) string {
	files := make([]string, len(names))
	for i, name := range names {
		files[i] = filepath.Join(folder, name)
	}
	return strings.Join(files, ":")
}

// addDriver adds the driver's library, which torch opens by name: a few functions must answer.
func (im imports) addDriver() {
	if _, ok := im[driver+".1"]; !ok {
		im[driver+".1"] = nil
	}
}

// loadOrder has the runtime first, as all others need it.
func (im imports) loadOrder() []string {
	names := slices.Sorted(maps.Keys(im))
	slices.SortStableFunc(names, func(a, b string) int {
		return rankOf(a) - rankOf(b)
	})
	return names
}

func rankOf(name string) int {
	if strings.HasPrefix(name, "libcudart.so") {
		return 0
	}
	return 1
}

// fingerprint is of what is asked for and of what there is to make it from.
func (im imports) fingerprint(torch, lib string) (string, error) {
	sum := sha256.New()
	program, why := compiler(torch)
	fmt.Fprintln(sum, torch, program, why)
	for _, name := range im.loadOrder() {
		fmt.Fprintln(sum, name, im[name], generatorVersion)
	}
	for _, file := range append(slices.Sorted(maps.Values(archives)), "operators.cc") {
		b, err := os.ReadFile(filepath.Join(lib, "hollow", file))
		if err != nil {
			return "", fmt.Errorf("%w: %w; run `make build` first", ErrBuild, err)
		}
		sum.Write(b)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// generatorVersion changes when what is generated does.
const generatorVersion = 2

// makeLibrary links one library: the lab's own stand-in where there is one, and a refusal for
// every other function.
func (im imports) makeLibrary(name, lib, folder string) error {
	args := []string{
		"-shared",
		"-fPIC",
		"-fno-builtin",
		"-w",
		"-O1", "-Wl,-soname," + name,
		"-o", filepath.Join(folder, name),
	}
	has := map[string]bool{}
	if archive := archiveOf(name); archive != "" {
		file := filepath.Join(lib, "hollow", archive)
		found, err := archiveSymbols(file)
		if err != nil {
			return err
		}
		has = found
		args = append(args, "-Wl,--whole-archive", file, "-Wl,--no-whole-archive")
	}
	source, versions := im.writeRefusals(name, has)
	files := map[string]string{name + ".c": source, name + ".map": versions}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			return fmt.Errorf("%w: %w", ErrBuild, err)
		}
	}
	args = append(args, filepath.Join(folder, name+".c"))
	if versions != "" {
		args = append(args, "-Wl,--version-script="+filepath.Join(folder, name+".map"))
	}
	if runtime := im.loadOrder()[0]; name != runtime && archiveOf(name) != "" {
		args = append(args, "-L"+folder, "-l:"+runtime)
	}
	out, err := exec.Command("gcc", append(args, "-pthread", "-lm")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: gcc for %s: %w: %s", ErrBuild, name, err, firstLine(out))
	}
	return nil
}

func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte("\n"))
	return string(line)
}

func archiveOf(name string) string {
	for prefix, file := range archives {
		if strings.HasPrefix(name, prefix) {
			return file
		}
	}
	return ""
}

// archiveSymbols are the functions that an archive defines.
func archiveSymbols(file string) (map[string]bool, error) {
	out, err := exec.Command("nm", "--defined-only", "--extern-only", "--format=posix", file).Output()
	if err != nil {
		return nil, fmt.Errorf("%w: nm %s: %w", ErrBuild, file, err)
	}
	has := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 2 {
			has[f[0]] = true
		}
	}
	return has, nil
}

// writeRefusals is the source of the functions that the lab lacks, and the version script.
func (im imports) writeRefusals(name string, has map[string]bool) (source, versions string) {
	var c strings.Builder
	c.WriteString("#include <stdio.h>\n")
	nodes := map[string][]string{}
	for _, s := range im[name] {
		nodes[s.version] = append(nodes[s.version], s.name)
		if !has[s.name] && !(strings.HasPrefix(name, driver) && driverAnswers[s.name] != "") {
			c.WriteString(refusal(name, s.name))
		}
	}
	if strings.HasPrefix(name, driver) {
		for _, f := range slices.Sorted(maps.Keys(driverAnswers)) {
			fmt.Fprintf(&c, "int %s%s\n", f, driverAnswers[f])
		}
	}
	var v strings.Builder
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		if node != "" {
			rest := "*"
			if strings.HasPrefix(name, "libcudart.so") || len(nodes) > 1 {
				rest = strings.Join(nodes[node], "; ")
			}
			fmt.Fprintf(&v, "%s { global: %s; };\n", node, rest)
		}
	}
	return c.String(), v.String()
}

// refusal is one function that reports that it is not emulated, once, and fails.
func refusal(library, name string) string {
	if strings.HasSuffix(name, "String") || strings.HasSuffix(name, "ErrorName") {
		return fmt.Sprintf("const char *%s(void) { return \"not emulated in the Falcon lab\"; }\n", name)
	}
	code := 1
	for prefix, v := range refusals {
		if strings.HasPrefix(library, prefix) {
			code = v
		}
	}
	if slices.ContainsFunc(quiet, func(q string) bool {
		return strings.HasPrefix(library, q)
	}) {
		return fmt.Sprintf("long %s(void) { return %d; }\n", name, code)
	}
	return fmt.Sprintf(
		"long %s(void) { static int once; if (!once++) fprintf(stderr, \"falcon lab: %s is not emulated here\\n\"); return %d; }\n",
		name, name, code,
	)
}

// driver is the driver's library, which is opened by name.
const driver = "libcuda.so"

// driverAnswers are the driver's functions that torch needs an answer of.
var driverAnswers = map[string]string{
	"cuInit":                     "(unsigned f) { return 0; }",
	"cuDriverGetVersion":         "(int *v) { *v = 13000; return 0; }",
	"cuCtxGetCurrent":            "(void **c) { static int one; *c = &one; return 0; }",
	"cuDevicePrimaryCtxGetState": "(int d, unsigned *f, int *active) { *f = 0; *active = 1; return 0; }",
	"cuGetErrorString":           "(int e, const char **s) { *s = \"not emulated in the Falcon lab\"; return 0; }",
	"cuMemGetAddressRange_v2":    "(void **base, unsigned long *n, void *p) { *base = p; *n = 1; return 0; }",
}
