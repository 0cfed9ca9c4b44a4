// Command night plays what takes hours: the plays that .ci/plays.toml lists.
//
//	night NAME...          plays some here and now, with what they print on the terminal
//	night -night [NAME...] plays all, or some, as a night does: logs and results in bin/nightly
//	night -list            lists them
//
// A night that was cut off goes on where it stopped: what passed at this commit is not played
// again. With NIGHT_SINCE=COMMIT neither is what passed at that commit or a later one, so that a
// night may take several days; NIGHT_RESULTS=FILE keeps the results there, so that they outlive
// the checkout.
//
// It guarantees that each play that ends has a row of results, that a play which had nothing to
// show is said to be skipped, and that a play in a tree with changes counts for no later night.
// It must not judge: what a play exits with is its result.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	var (
		root  = flag.String("root", "../..", "root of the tree")
		night = flag.Bool("night", false, "play as a night does, into bin/nightly")
		list  = flag.Bool("list", false, "list the plays")
	)
	flag.Parse()
	// The play has the same terminal and ends by the same key; its result is entered then. A signal
	// that was ignored here would be ignored by the play.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	if err := run(*root, *night, *list, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "night:", err)
		os.Exit(1)
	}
}

func run(root string, night, list bool, names []string) error {
	plays, err := readPlays(root)
	if err != nil {
		return err
	}
	if list {
		fmt.Print(listed(plays))
		return nil
	}
	chosen, err := choose(plays, names)
	if err != nil {
		return err
	}
	r := newRunner(root)
	if night {
		return r.night(chosen)
	}
	for _, p := range chosen {
		missing, err := r.play(p, os.Stdout, r.here())
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		if missing != "" {
			fmt.Printf("%s: skipped: %s\n", p.Name, missing)
		}
	}
	return nil
}

// choose returns the plays of these names, all for none.
func choose(plays []play, names []string) ([]play, error) {
	if len(names) == 0 {
		return plays, nil
	}
	var out []play
	for _, name := range names {
		i := slices.IndexFunc(plays, func(p play) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no target and no play is named %q; `make targets` lists them", name)
		}
		out = append(out, plays[i])
	}
	return out, nil
}

// listed has a line for each play that is no target of the Makefile.
func listed(plays []play) string {
	var b strings.Builder
	for _, p := range plays {
		if p.About != "" {
			fmt.Fprintf(&b, "  %-18s %s%s\n", p.Name, p.About, p.wants())
		}
	}
	return b.String()
}
