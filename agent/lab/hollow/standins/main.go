// Standins prints the environment in which a PyTorch wheel of PyPI runs on CPUs without NVIDIA's
// libraries, one NAME=VALUE per line. Tensors on CPUs are computed by the wheel itself.
package main

import (
	"fmt"
	"os"

	"github.com/failslow/falcon/agent/lab/hollow"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(
			os.Stderr,
			"usage: standins TORCH LIB CACHE (the package's folder, bin/lib, and where to keep the stand-ins)",
		)
		os.Exit(2)
	}
	folder, names, err := hollow.Build(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if why := hollow.Uncomputed(folder); why != "" {
		fmt.Fprintf(os.Stderr, "standins: control data on emulated GPUs is not computed: %s\n", why)
	}
	fmt.Printf("LD_LIBRARY_PATH=%s\nLD_PRELOAD=%s\nCUDA_VISIBLE_DEVICES=\n",
		folder, hollow.Preload(folder, names))
}
