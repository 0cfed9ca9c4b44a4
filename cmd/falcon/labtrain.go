package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/failslow/falcon/agent/lab"
	"github.com/failslow/falcon/agent/lab/hollow"
)

// defaultGflops has a small model's iteration take longer on the emulated GPUs than on the host
// that drives them: two cores launch the kernels of all ranks.
const defaultGflops = 20

// findTorch prints the folder of the package without importing it, which takes seconds.
const findTorch = `import importlib.util,os; s=importlib.util.find_spec("torch"); print(os.path.dirname(s.origin) if s else "")`

// ownTraining is the user's command on stand-ins made for the PyTorch that its interpreter has.
func ownTraining(o labOptions, bin string) (*lab.OwnTraining, error) {
	if !(o.gflops > 0) {
		return nil, fmt.Errorf("%w: --gpu-gflops wants a positive number", errUsage)
	}
	words, err := trainWords(o.train)
	if err != nil {
		return nil, err
	}
	torch, err := findPyTorch(o.train, o.trainPython)
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("no folder for the stand-ins: %w", err)
	}
	lib := filepath.Join(bin, "lib")
	folder, names, err := hollow.Build(
		torch,
		lib,
		filepath.Join(cache, "falcon", "hollow"),
	)
	if err != nil {
		return nil, err
	}
	if why := hollow.Uncomputed(folder); why != "" {
		fmt.Fprintf(os.Stderr,
			"falcon: control data is not computed on the emulated GPUs: %s; object collectives and pipelines don't work\n",
			why)
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("can't tell the working directory: %w", err)
	}
	store, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return &lab.OwnTraining{
		Command: words,
		Dir:     dir,
		Peak:    o.gflops * 1e9,
		Store:   store,
		Env: []string{
			"LD_LIBRARY_PATH=" + folder + ":" + lib,
			"LD_PRELOAD=" + hollow.Preload(folder, names),
			"FALCON_LAB_HOLLOW=1",
			"PYTHONUNBUFFERED=1",
			"PYTHONPATH=" + strings.TrimSuffix(filepath.Join(bin, "python")+":"+os.Getenv("PYTHONPATH"), ":"),
		},
	}, nil
}
