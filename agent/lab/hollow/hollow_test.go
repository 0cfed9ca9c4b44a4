package hollow

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compile runs gcc.
func compile(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %v: %v\n%s", args, err, out)
	}
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// fakeWheel is a package folder whose libtorch_cuda.so needs a runtime with version nodes and a
// library without, as a real wheel does, and whose library both export.
func fakeWheel(t *testing.T, missing string) (torch string) {
	t.Helper()
	dir := t.TempDir()
	torch = filepath.Join(dir, "torch")
	if err := os.MkdirAll(filepath.Join(torch, "lib"), 0o700); err != nil {
		t.Fatal(err)
	}
	runtime := filepath.Join(dir, "libcudart.so.13")
	dnn := filepath.Join(dir, "libcudnn.so.9")
	nodes := write(t, filepath.Join(dir, "rt.map"), "libcudart.so.13 { global: *; };\n")
	compile(
		t,
		"-shared",
		"-fPIC",
		"-Wl,-soname,libcudart.so.13", "-Wl,--version-script="+nodes,
		"-o", runtime,
		write(
			t,
			filepath.Join(dir, "rt.c"),
			"int cudaMalloc(void **p, unsigned long n) { return 9; }\nint cudaPrefetchBatch(void) { return 0; }\n",
		),
	)
	compile(
		t,
		"-shared",
		"-fPIC",
		"-Wl,-soname,libcudnn.so.9",
		"-o", dnn,
		write(t, filepath.Join(dir, "dnn.c"),
			"int cudnnCreate(void *p) { return 0; }\nconst char *cudnnGetErrorString(int e) { return 0; }\n"),
	)
	source := write(t, filepath.Join(dir, "t.c"),
		`int cudaMalloc(void **p, unsigned long n); int cudaPrefetchBatch(void); int cudnnCreate(void *p); const char *cudnnGetErrorString(int e);
int allocate(void) { void *p = 0; return cudaMalloc(&p, 8) == 0 && p; }
int refused(void) { return cudaPrefetchBatch() != 0 && cudnnCreate(0) != 0 && cudnnGetErrorString(1)[0]; }
`)
	compile(
		t,
		"-shared",
		"-fPIC",
		"-o", filepath.Join(torch, "lib", missing+"libtorch_cuda.so"),
		source,
		runtime,
		dnn,
	)
	write(t, filepath.Join(torch, "lib", "libgomp.so"), "not an ELF file")
	return torch
}

// builtLibraries is the folder of the lab's own stand-ins.
func builtLibraries(t *testing.T) string {
	t.Helper()
	lib := "../../../bin/lib"
	if _, err := os.Stat(filepath.Join(lib, "hollow", "cudart.a")); err != nil {
		t.Skip("the stand-ins are not built; run `make native`")
	}
	return lib
}

func TestAWheelRunsOnItsStandIns(t *testing.T) {
	lib := builtLibraries(t)
	torch := fakeWheel(t, "")
	cache := t.TempDir()
	folder, names, err := Build(torch, lib, cache)
	if err != nil {
		t.Fatal(err)
	}
	if want := "libcudart.so.13 libcuda.so.1 libcudnn.so.9"; strings.Join(names, " ") != want {
		t.Errorf("made %v, want %s", names, want)
	}
	program := filepath.Join(t.TempDir(), "user")
	compile(
		t,
		"-o", program,
		write(
			t,
			program+".c",
			"int allocate(void); int refused(void); int main(void) { return allocate() && refused() ? 0 : 1; }\n",
		),
		filepath.Join(torch, "lib", "libtorch_cuda.so"),
		"-Wl,--allow-shlib-undefined", "-Wl,--unresolved-symbols=ignore-in-shared-libs",
	)
	c := exec.Command(program)
	var preload []string
	for _, n := range names {
		preload = append(preload, filepath.Join(folder, n))
	}
	c.Env = []string{
		"LD_LIBRARY_PATH=" + filepath.Join(torch, "lib") + ":" + folder,
		"LD_PRELOAD=" + strings.Join(preload, ":"),
	}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want := "falcon lab: cudaPrefetchBatch is not emulated here\nfalcon lab: cudnnCreate is not emulated here\n"; string(
		out,
	) != want {
		t.Errorf("it printed %q, want %q", out, want)
	}
	before, err := os.Stat(folder)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := Build(torch, lib, cache)
	after, statErr := os.Stat(folder)
	if err != nil ||
		again != folder ||
		statErr != nil ||
		!after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the second time: %q, %v, %v", again, err, statErr)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "draft-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWhatCannotBeUsedIsRefused(t *testing.T) {
	if _, _, err := Build(fakeWheel(t, "not_"), builtLibraries(t), t.TempDir()); !errors.Is(err, ErrTorch) ||
		!strings.Contains(err.Error(), "built without CUDA") {
		t.Errorf("an installation without CUDA: %v", err)
	}
	if _, _, err := Build(fakeWheel(t, ""), t.TempDir(), t.TempDir()); !errors.Is(err, ErrBuild) ||
		!strings.Contains(err.Error(), "make build") {
		t.Errorf("without the lab's stand-ins: %v", err)
	}
}

// A compiler that was ended says nothing of the installation: the next build tries again.
func TestAnEndedCompilerIsNotRemembered(t *testing.T) {
	lib := builtLibraries(t)
	torch := fakeWheel(t, "")
	cache := t.TempDir()
	tools := t.TempDir()
	headers := filepath.Join(torch, "include", "ATen", "core", "dispatch")
	if err := os.MkdirAll(headers, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(headers, "Dispatcher.h"), "")
	program := write(t, filepath.Join(tools, "g++"), "#!/bin/sh\nkill -KILL $$\n")
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	if _, _, err := Build(torch, lib, cache); !errors.Is(err, ErrBuild) ||
		!strings.Contains(err.Error(), "g++: signal: killed") {
		t.Errorf("g++ was killed: %v", err)
	}
	write(t, program, "#!/bin/sh\necho 'x.h: error: no such thing'; exit 1\n")
	folder, _, err := Build(torch, lib, cache)
	if err != nil || Uncomputed(folder) != "g++: x.h: error: no such thing" {
		t.Errorf("it fails by itself: %v, %q", err, Uncomputed(folder))
	}
}
