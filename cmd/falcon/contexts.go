package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/contexts"
	"github.com/failslow/falcon/tui/feed"
)

func contextCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "context",
		Short: "Name the engines that commands and consoles attach to",
		Long: "A context is a name for an engine: its socket, or HOST:PORT with certificates. They are kept in contexts.toml\n" +
			"beside console.toml ($" + contexts.Env +
			" names another file), readable by you alone. --context NAME has any command\n" +
			"use one, falcon console --all shows all of them at once.",
		Example: "  falcon context list\n  falcon context add prod-a engine-a:7777 --ca ca.pem --cert maria.pem --key maria-key.pem\n  falcon context use prod-a",
	}
	c.AddCommand(contextList(), contextUse(), contextAdd(), contextJoin(), contextRemove())
	return c
}

func contextList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the contexts; * is the current one",
		Example: "  falcon context list\n  falcon context list --json",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			f, path, err := loadContexts()
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), contextDocuments(f))
			}
			if len(f.Contexts) == 0 {
				_, err = fmt.Fprintf(c.OutOrStdout(),
					"no contexts in %s; add one with: falcon context add NAME ADDRESS\n",
					clean.String(path))
				return err
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, x := range f.Contexts {
				mark := " "
				if x.Name == f.Current {
					mark = "*"
				}
				fmt.Fprintf(w, "%s %s\t%s\n", mark, x.Name, clean.String(x.Address))
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document")
	return c
}

type contextDocument struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Current bool   `json:"current"`
}

func contextDocuments(f contexts.File) []contextDocument {
	out := []contextDocument{}
	for _, x := range f.Contexts {
		out = append(out, contextDocument{x.Name, x.Address, x.Name == f.Current})
	}
	return out
}

func contextUse() *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Have commands that name no engine use this one",
		Long:              "Use sets the current context: commands use its engine where neither --connect, --context nor $FALCON_SOCKET name another.\n- as the NAME sets none.",
		Example:           "  falcon context use prod-a",
		Args:              takesOne("the context's name, or -"),
		ValidArgsFunction: completeContexts,
		RunE: func(c *cobra.Command, args []string) error {
			name := args[0]
			if name == "-" {
				name = ""
			}
			return changeContexts(func(f contexts.File) (contexts.File, error) {
				return f.Use(name)
			})
		},
	}
}

func contextAdd() *cobra.Command {
	var x contexts.Context
	var replace bool
	c := &cobra.Command{
		Use:     "add NAME ADDRESS",
		Short:   "Add an engine: its socket's path, or HOST:PORT with the three certificate flags",
		Example: "  falcon context add here /run/falcon/falcon.sock\n  falcon context add prod-a engine-a:7777 --ca ca.pem --cert maria.pem --key maria-key.pem",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%w: give a name and an address: falcon context add NAME ADDRESS", errUsage)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			x.Name, x.Address = args[0], args[1]
			if err := x.Check(); err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			if err := wholePaths(&x); err != nil {
				return err
			}
			return changeContexts(func(f contexts.File) (contexts.File, error) {
				return f.Add(x, replace)
			})
		},
	}
	c.Flags().StringVar(&x.CA, "ca", "", "authority's certificate")
	c.Flags().StringVar(&x.Cert, "cert", "", "own certificate")
	c.Flags().StringVar(&x.Key, "key", "", "own key")
	c.Flags().BoolVar(&replace, "replace", false, "take the place of a context of this name")
	return c
}

// wholePaths makes paths mean the same wherever a command is started.
func wholePaths(x *contexts.Context) error {
	files := []*string{&x.CA, &x.Cert, &x.Key}
	if x.IsSocket() {
		x.Address = strings.TrimPrefix(strings.TrimPrefix(x.Address, "unix://"), "unix:")
		files = []*string{&x.Address}
	}
	for _, file := range files {
		whole, err := filepath.Abs(*file)
		if err != nil {
			return err
		}
		*file = whole
	}
	return nil
}

func contextRemove() *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME",
		Short:             "Forget an engine; nothing of it is touched",
		Example:           "  falcon context remove prod-a",
		Args:              takesOne("the context's name"),
		ValidArgsFunction: completeContexts,
		RunE: func(c *cobra.Command, args []string) error {
			return changeContexts(func(f contexts.File) (contexts.File, error) {
				return f.Remove(args[0])
			})
		},
	}
}

// takesOne wants one argument.
func takesOne(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%w: %s takes %s", errUsage, c.CommandPath(), what)
		}
		return nil
	}
}

func loadContexts() (f contexts.File, path string, err error) {
	path = contexts.Path(os.Getenv)
	if f, err = contexts.Load(path); err != nil {
		return f, path, fmt.Errorf("%w: %w", errUsage, err)
	}
	return f, path, nil
}

func changeContexts(change func(contexts.File) (contexts.File, error)) error {
	f, path, err := loadContexts()
	if err != nil {
		return err
	}
	if f, err = change(f); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return f.Save(path)
}

// completeContexts completes the names of contexts.
func completeContexts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	f, _, err := loadContexts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, x := range f.Contexts {
		out = append(out, completion(x.Name, x.Address))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeContextList completes what --context takes: a name, or several where a console does.
func completeContextList(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	list, how := completeContexts(c, nil, "")
	if c.Name() != "console" {
		return list, how
	}
	if i := strings.LastIndexByte(typed, ','); i >= 0 {
		for n := range list {
			list[n] = typed[:i+1] + list[n]
		}
	}
	return list, how | cobra.ShellCompDirectiveNoSpace
}

// useContext has a target use the context that a flag names, else the current one where nothing
// else names an engine.
func (t *engineTarget) useContext() error {
	switch {
	case t.context != "" && t.connect != "":
		return fmt.Errorf("%w: --context and --connect both name an engine: give one of them", errUsage)
	case t.connect != "" && !isSocket(t.connect) && t.certs == (auth.Files{}):
		return t.useContextAt(t.connect)
	case t.connect != "" || t.context == "" && os.Getenv("FALCON_SOCKET") != "":
		return nil
	}
	f, _, err := loadContexts()
	if err != nil {
		return err
	}
	name := t.context
	if name == "" {
		name = f.Current
	}
	if name == "" {
		return nil
	}
	list, err := f.Choose([]string{name})
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	t.context, t.connect = "", list[0].Address
	t.certs = auth.Files{
		CA:   list[0].CA,
		Cert: list[0].Cert,
		Key:  list[0].Key,
	}
	return nil
}

// useContextAt takes the certificates of the context that has an address, if there is one.
func (t *engineTarget) useContextAt(addr string) error {
	f, _, err := loadContexts()
	if err != nil {
		return err
	}
	for _, x := range f.Contexts {
		if x.Address == addr {
			t.certs = auth.Files{CA: x.CA, Cert: x.Cert, Key: x.Key}
			return nil
		}
	}
	return nil
}

// dialContext makes a client that tries again soon after its engine was away.
func dialContext(x contexts.Context) (*grpc.ClientConn, error) {
	if x.IsSocket() {
		return feed.Dial(x.Address)
	}
	conf, err := auth.ClientTLS(auth.Files{CA: x.CA, Cert: x.Cert, Key: x.Key})
	if err != nil {
		return nil, err
	}
	retry := backoff.DefaultConfig
	retry.MaxDelay = 5 * time.Second
	return grpc.NewClient(x.Address, grpc.WithTransportCredentials(credentials.NewTLS(conf)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 3 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(snapshotBytesMax)))
}

// enginesHere are the engines that run on this machine for this user: of labs, and of the usual
// places.
func enginesHere() []contexts.Context {
	var out []contexts.Context
	put := func(name, path string) {
		c, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			return
		}
		_ = c.Close()
		out = append(out, contexts.Context{Name: name, Address: path})
	}
	put("local", filepath.Join(defaultStateDir(), socketName))
	if s := strings.TrimPrefix(os.Getenv("FALCON_SOCKET"), "unix:"); s != "" && isSocket(s) {
		put("env", s)
	}
	for _, socket := range labSockets() {
		put("lab-"+strings.TrimPrefix(filepath.Base(filepath.Dir(socket)), "run-"), socket)
	}
	return out
}
