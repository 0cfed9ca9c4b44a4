package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nearest is the one of known that word was probably meant to be, or "".
func nearest(word string, known []string) string {
	group := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, k := range known {
		group.AddCommand(&cobra.Command{
			Use: k,
			Run: func(*cobra.Command, []string) {},
		})
	}
	found := group.SuggestionsFor(word)
	if len(found) == 0 {
		return ""
	}
	slices.Sort(found)
	return found[0]
}

// didYouMean adds to an error about an unknown name what was probably meant.
func didYouMean(err error, word string, known []string) error {
	if near := nearest(word, known); near != "" && near != word {
		return fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return err
}

// goneNote is the annotation of a command that says what has taken the place of a command
// below it, or of a flag of it, that there was before.
func goneNote(name string) string { return "gone " + name }

// flagError is wrong use of a flag; of one that there is not, with the one that was meant.
func flagError(c *cobra.Command, err error) error {
	err = fmt.Errorf("%w: %w", errUsage, err)
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) {
		return err
	}
	name := "--" + unknown.GetSpecifiedName()
	if note := c.Annotations[goneNote(name)]; note != "" {
		return fmt.Errorf("%w; it is gone: %s", err, note)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		names = append(names, "--"+f.Name)
	})
	return didYouMean(err, name, names)
}

// unknownCommand is wrong use of a command group.
func unknownCommand(c *cobra.Command, word string) error {
	if note := c.Annotations[goneNote(word)]; note != "" {
		return fmt.Errorf("%w: %s has no command %q any more: %s", errUsage, c.CommandPath(), word, note)
	}
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return didYouMean(
		fmt.Errorf("%w: %s has no command %q; see %s --help",
			errUsage, c.CommandPath(), word, c.CommandPath()),
		word,
		names,
	)
}
