// Command size counts the code of the tree. A line can hold much or little, so the
// measure is tokens: what the Go scanner finds, without comments and without the
// semicolons that line ends stand for.
//
// Product is what the programs are built from. The table names it per top-level
// folder, without generated code; tests, helpers of tests and this module follow.
//
// It guarantees the same figures for the same sources, and it must not judge: the
// bounds are those of whoever reads the table.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", "../..", "folder of the main module")
	flag.Parse()
	groups, err := countTree(*root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
	groups.print(os.Stdout)
}
