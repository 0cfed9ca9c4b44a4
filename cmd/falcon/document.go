package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// documentCommand completes a command that makes one document and changes
// nothing: it writes the document as text, or as JSON with --json.
func documentCommand[T any](
	c *cobra.Command,
	fetch func(c *cobra.Command, args []string) (T, error),
	text func(io.Writer, T) error,
) *cobra.Command {
	var asJSON bool
	c.RunE = func(c *cobra.Command, args []string) error {
		doc, err := fetch(c, args)
		switch {
		case err != nil:
			return err
		case asJSON:
			return writeJSON(c.OutOrStdout(), doc)
		}
		return text(c.OutOrStdout(), doc)
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON document")
	return c
}

// writeJSON writes one indented document.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("can't write the result: %w", err)
	}
	return nil
}

func writeString(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// oneArgument wants exactly one argument; otherwise the error is how, such as
// "give one FILE".
func oneArgument(how string) cobra.PositionalArgs {
	return exactArguments(1, how)
}

// exactArguments wants n arguments, as oneArgument wants one.
func exactArguments(n int, how string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%w: %s (see %s --help)", errUsage, how, c.CommandPath())
		}
		return nil
	}
}

// oneFile wants exactly one FILE.
var oneFile = oneArgument("give one FILE, or - for standard input")

// exactlyOneID wants the id of a thing such as the example.
func exactlyOneID(thing, example string) cobra.PositionalArgs {
	return oneArgument("give one " + thing + ", such as " + example)
}

func takesNothing(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: %s takes no arguments, got %q (see %s --help)",
			errUsage, c.CommandPath(), args[0], c.CommandPath())
	}
	return nil
}

// readInput reads a file, or standard input for "-". An error of read names the
// file.
func readInput[T any](c *cobra.Command, path string, read func(io.Reader) (T, error)) (T, error) {
	var none T
	in, err := openInput(c, path)
	if err != nil {
		return none, err
	}
	defer in.Close()
	out, err := read(in)
	if err != nil {
		return none, fileError(path, err)
	}
	return out, nil
}

func openInput(c *cobra.Command, path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(c.InOrStdin()), nil
	}
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return nil, fmt.Errorf("there is no file %q; check the path", path)
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("%q is a folder; name a file in it", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("can't read the input: %w", err)
	}
	return file, nil
}

// fileError names the file in a decoder's sentence, without the package's
// prefix.
func fileError(path string, err error) error {
	if path == "-" {
		path = "standard input"
	}
	return &inputError{
		text:  path + ": " + strings.TrimPrefix(err.Error(), "trace: "),
		cause: err,
	}
}

type inputError struct {
	text  string
	cause error
}

func (e *inputError) Error() string { return e.text }
func (e *inputError) Unwrap() error { return e.cause }
