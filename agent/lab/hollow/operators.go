package hollow

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// operatorsLibrary computes control data: the runtime's stand-in loads it where it is beside it.
const operatorsLibrary = "libfalcon_lab_operators.so"

// missingOperators is the file that says why there is no such library.
const missingOperators = "operators.missing"

// Uncomputed is why the stand-ins in the folder compute no control data; empty where they do.
func Uncomputed(folder string) string {
	why, err := os.ReadFile(filepath.Join(folder, missingOperators))
	if err != nil {
		return ""
	}
	return string(why)
}

// compiler says what the operators of a package folder are compiled with, or why they can't be.
func compiler(torch string) (program, why string) {
	if _, err := os.Stat(filepath.Join(
		torch,
		"include",
		"ATen",
		"core",
		"dispatch",
		"Dispatcher.h",
	)); err != nil {
		return "", "this PyTorch has no headers (torch/include); install its wheel again"
	}
	program, err := exec.LookPath("g++")
	if err != nil {
		return "", "there is no g++; install it"
	}
	return program, ""
}

// makeOperators compiles the library for the installation in torch. Without it kernels compute nothing, which
// is enough for jobs that keep control data on the host.
func makeOperators(torch, lib, folder string) error {
	program, why := compiler(torch)
	if why == "" {
		var err error
		if why, err = compileOperators(program, torch, lib, folder); err != nil {
			return err
		}
	}
	if why == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(folder, missingOperators), []byte(why), 0o600); err != nil {
		return fmt.Errorf("%w: %w", ErrBuild, err)
	}
	return nil
}

// compileOperators returns why it fails: an unknown release of PyTorch is no reason to run nothing.
// A compiler that was ended, with its lab or for memory, is an error: it says nothing of the
// release, and is not to be remembered.
func compileOperators(program, torch, lib, folder string) (why string, err error) {
	libraries := filepath.Join(torch, "lib")
	args := []string{
		"-std=c++20",
		"-O1",
		"-w",
		"-shared",
		"-fPIC", "-fvisibility=hidden",
		"-D_GLIBCXX_USE_CXX11_ABI=" + stringABI(libraries),
		"-I" + filepath.Join(torch, "include"),
		"-o", filepath.Join(folder, operatorsLibrary),
		filepath.Join(lib, "hollow", "operators.cc"),
		"-L" + libraries,
		"-ltorch_cpu",
		"-lc10",
	}
	out, err := exec.Command(program, args...).CombinedOutput()
	if err == nil {
		return "", nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() < 0 {
		return "", fmt.Errorf("%w: g++: %w; try again", ErrBuild, err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "error") {
			return "g++: " + strings.TrimSpace(line), nil
		}
	}
	return fmt.Sprintf("g++: %v", err), nil
}

// stringABI is which of libstdc++'s strings the libraries take: wheels before 2.7 have the old one.
func stringABI(libraries string) string {
	f, err := elf.Open(filepath.Join(libraries, "libc10.so"))
	if err != nil {
		return "1"
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return "1"
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF &&
			strings.HasPrefix(s.Name, "_ZN3c105ErrorC") &&
			strings.Contains(s.Name, "__cxx11") {
			return "1"
		}
	}
	return "0"
}
