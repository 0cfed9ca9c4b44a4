package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// detectCommand is the production detector on files.
func detectCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "detect",
		Short:   "Run the production detector on files",
		Example: "  falcon detect iterations run.csv --column ms",
	}
	c.AddCommand(detectIterationsCommand(), detectCallsCommand(), detectWorkersCommand(), detectProfileCommand(), detectTraceCommand())
	return c
}

// oneFile wants exactly one FILE.
func oneFile(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%w: give one FILE, or - for standard input (see %s --help)", errUsage, c.CommandPath())
	}
	return nil
}

// openInput opens a file to read, or standard input for "-".
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
	return &inputError{text: path + ": " + strings.TrimPrefix(err.Error(), "trace: "), cause: err}
}

type inputError struct {
	text  string
	cause error
}

func (e *inputError) Error() string { return e.text }
func (e *inputError) Unwrap() error { return e.cause }

// writeDocument writes one indented document.
func writeDocument(w io.Writer, doc any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("can't write the result: %w", err)
	}
	return nil
}
