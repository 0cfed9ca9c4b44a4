package hollow

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ErrTorch is wrapped by errors about an installation that can't be used.
var ErrTorch = errors.New("hollow: no usable PyTorch")

// cudaLibrary is what the names of NVIDIA's libraries look like.
var cudaLibrary = regexp.MustCompile(`^lib(cu|nv|nccl)\w*\.so(\.\d+)*$`)

// symbol is one function that a wheel imports.
type symbol struct {
	name    string
	version string // node that it asks for; empty where the library has none
}

// imports are the functions that a wheel's libraries import, by the library's soname.
type imports map[string][]symbol

// prefixes are the libraries whose symbols carry no version node, by the beginning of a function's name.
var prefixes = []struct{ function, library string }{
	{"nccl", "libnccl.so"},
	{"cudnn", "libcudnn.so"},
	{"cusparseLt", "libcusparseLt.so"},
	{"cuFile", "libcufile.so"},
	{"cupti", "libcupti.so"},
	{"nvrtc", "libnvrtc.so"},
	{"nvshmem", "libnvshmem_host.so"},
	{"cu", "libcuda.so"},
}

// readWheel collects what the libraries of the package folder torch import from NVIDIA's.
func readWheel(torch string) (imports, error) {
	files, err := wheelLibraries(torch)
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, f := range files {
		own[filepath.Base(f)] = true
	}
	found := map[string]map[symbol]bool{}
	for _, file := range files {
		if err := addImports(found, file, own); err != nil {
			return nil, err
		}
	}
	return sortImports(found), nil
}

func wheelLibraries(torch string) ([]string, error) {
	var files []string
	for _, pattern := range []string{"lib/*.so*", "_C*.so"} {
		more, err := filepath.Glob(filepath.Join(torch, pattern))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTorch, err)
		}
		files = append(files, more...)
	}
	if !slices.ContainsFunc(files, func(f string) bool {
		return filepath.Base(f) == "libtorch_cuda.so"
	}) {
		return nil, fmt.Errorf(
			"%w: %s has no lib/libtorch_cuda.so: it was built without CUDA; install the wheel of PyPI",
			ErrTorch, torch,
		)
	}
	return files, nil
}

// addImports adds what one library imports.
func addImports(found map[string]map[symbol]bool, file string, own map[string]bool) error {
	f, err := elf.Open(file)
	if err != nil {
		_, bad := errors.AsType[*elf.FormatError](err)
		if bad || errors.Is(err, io.EOF) || errors.Is(err, os.ErrNotExist) {
			return nil // a linker script, or a link that leads nowhere
		}
		return fmt.Errorf("%w: %w", ErrTorch, err)
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrTorch, file, err)
	}
	for _, lib := range needed {
		if cudaLibrary.MatchString(lib) && !own[lib] && found[lib] == nil {
			found[lib] = map[symbol]bool{}
		}
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrTorch, file, err)
	}
	for _, s := range symbols {
		lib := s.Library
		if lib == "" {
			lib = libraryOf(s.Name, needed)
		}
		if found[lib] != nil {
			found[lib][symbol{s.Name, s.Version}] = true
		}
	}
	return nil
}

// libraryOf guesses whose function a name without a version node is, among those that its user needs.
func libraryOf(name string, needed []string) string {
	for _, p := range prefixes {
		if !strings.HasPrefix(name, p.function) {
			continue
		}
		i := slices.IndexFunc(needed, func(lib string) bool {
			return strings.HasPrefix(lib, p.library)
		})
		if i >= 0 {
			return needed[i]
		}
	}
	return ""
}

func sortImports(found map[string]map[symbol]bool) imports {
	out := imports{}
	for lib, symbols := range found {
		out[lib] = slices.SortedFunc(maps.Keys(symbols), func(a, b symbol) int {
			return strings.Compare(a.name+"@"+a.version, b.name+"@"+b.version)
		})
	}
	return out
}
