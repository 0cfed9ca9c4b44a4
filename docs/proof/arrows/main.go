// Arrows counts which files of a package use which others, and how many of these arrows
// run upward: against the order of the files in which the fewest do.
//
// Usage, from the root of the tree:
//
//	go -C docs/proof run ./arrows ./backend/engine ./detect
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	list := flag.Bool("list", false, "print the order, and the names behind each upward arrow")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "arrows: name packages of the product, as ./backend/engine")
		os.Exit(2)
	}
	for _, pkg := range flag.Args() {
		g, err := load("../..", pkg)
		if err != nil {
			fmt.Fprintln(os.Stderr, "arrows:", err)
			os.Exit(1)
		}
		order := g.rank()
		up := g.upward(order)
		all := max(1, g.arrows())
		fmt.Printf("%s: %d files, %d arrows, %d upward (%.1f %%)\n",
			pkg, len(g.files), g.arrows(), len(up), 100*float64(len(up))/float64(all))
		if *list {
			fmt.Println(strings.Join(order, "\n"))
			g.print(os.Stdout, up)
		}
	}
}
