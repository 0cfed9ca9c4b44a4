package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/tui/contexts"
)

// invitation is all that a person needs to reach an engine, in one file: it holds a private key.
type invitation struct {
	Address string `toml:"address"`
	CA      string `toml:"ca"`
	Cert    string `toml:"cert"`
	Key     string `toml:"key"`
}

// invitationSuffix ends the file's name.
const invitationSuffix = ".falcon"

// invitationMost bounds the file.
const invitationMost = 256 << 10

// writeInvitation puts what certsIssue has written into one file, and says what to do with it.
func writeInvitation(out io.Writer, dir, name, engine string) error {
	if _, _, err := net.SplitHostPort(engine); err != nil {
		return fmt.Errorf("%w: --for: %q is no HOST:PORT", errUsage, engine)
	}
	f := auth.FilesIn(dir, name)
	x := invitation{Address: engine}
	for _, part := range []struct {
		to   *string
		file string
	}{{&x.CA, f.CA}, {&x.Cert, f.Cert}, {&x.Key, f.Key}} {
		text, err := os.ReadFile(part.file)
		if err != nil {
			return err
		}
		*part.to = string(text)
	}
	path := filepath.Join(dir, name+invitationSuffix)
	text, err := toml.Marshal(x)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\ncopy it to %s, who types: falcon context join %s\n",
		path, name, filepath.Base(path))
	return err
}

func contextJoin() *cobra.Command {
	var name string
	var replace bool
	c := &cobra.Command{
		Use:     "join FILE",
		Short:   "Add the engine of a file that falcon certs issue --for has written",
		Long:    "Join puts certificate and key beside contexts.toml, readable by you alone, and adds the engine as a context, the current one where\nthere is none. The file is not needed afterwards: it holds your key, so remove it.",
		Example: "  falcon context join dana.falcon\n  falcon console",
		Args:    takesOne("the file"),
		RunE: func(c *cobra.Command, args []string) error {
			x, err := readInvitation(args[0])
			if err != nil {
				return err
			}
			host, _, _ := net.SplitHostPort(x.Address)
			name := cmp.Or(name, host)
			if err := joinEngine(x, name, replace); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s is the engine at %s: falcon console --context %[1]s\n",
				name, x.Address)
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "", "of the context (default: the engine's host)")
	c.Flags().BoolVar(&replace, "replace", false, "take the place of a context of this name")
	return c
}

var errInvitation = errors.New("this is no file of falcon certs issue --for")

func readInvitation(path string) (x invitation, err error) {
	f, err := os.Open(path)
	if err != nil {
		return x, fmt.Errorf("%w: %w", errUsage, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, invitationMost))
	if err != nil {
		return x, err
	}
	if _, err := toml.Decode(string(text), &x); err != nil {
		return x, fmt.Errorf("%w: %s: %w", errUsage, path, errInvitation)
	}
	if _, _, err := net.SplitHostPort(x.Address); err != nil || x.CA == "" || x.Cert == "" || x.Key == "" {
		return x, fmt.Errorf("%w: %s: %w", errUsage, path, errInvitation)
	}
	return x, nil
}

// joinEngine keeps the parts of an invitation and adds the context.
func joinEngine(x invitation, name string, replace bool) error {
	file := contexts.Path(os.Getenv)
	if file == "" {
		return fmt.Errorf("%w: there is no home to keep contexts in: name a file with %s",
			errUsage, contexts.Env)
	}
	c := contexts.Context{
		Name:    name,
		Address: x.Address,
		CA:      "/",
		Cert:    "/",
		Key:     "/",
	}
	if err := c.Check(); err != nil { // before a name becomes a folder's
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	dir := filepath.Join(filepath.Dir(file), "engines", name)
	files := auth.FilesIn(dir, "own")
	c.CA = files.CA
	c.Cert = files.Cert
	c.Key = files.Key
	if err := changeContexts(func(f contexts.File) (contexts.File, error) {
		f, err := f.Add(c, replace)
		if err == nil && f.Current == "" {
			f.Current = name
		}
		return f, err
	}); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for path, text := range map[string]string{files.CA: x.CA, files.Cert: x.Cert, files.Key: x.Key} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
