package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/backend/auth"
)

func certsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "certs",
		Short:   "Make the certificates of an installation",
		Example: "  falcon certs init --host head.example.org",
	}
	c.AddCommand(certsInitCommand(), certsIssueCommand())
	return c
}

func certsDirFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "dir", filepath.Join(defaultStateDir(), certsName), "directory of the authority and its certificates")
}

func certsInitCommand() *cobra.Command {
	var dir string
	var hosts []string
	c := &cobra.Command{
		Use:     "init",
		Short:   "Make an authority and the engine's certificate",
		Example: "  falcon certs init --host head.example.org --host 10.0.0.1",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := certsInit(dir, hosts, time.Now()); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "authority and server certificate in %s\n", dir)
			return nil
		},
	}
	certsDirFlag(c, &dir)
	c.Flags().StringSliceVar(&hosts, "host", nil, "name or address under which agents reach the engine (127.0.0.1 and localhost always hold)")
	return c
}

// certsInit writes ca.* and server.* into dir.
func certsInit(dir string, hosts []string, now time.Time) error {
	ca, err := auth.NewCA("Falcon", now)
	if err != nil {
		return err
	}
	if err := ca.Save(dir); err != nil {
		return err
	}
	return ca.IssueTo(dir, auth.Request{
		Role: auth.RoleServer, Name: string(auth.RoleServer), Hosts: append([]string{"127.0.0.1", "::1", "localhost"}, hosts...),
	}, now)
}

func certsIssueCommand() *cobra.Command {
	var dir, role, name string
	var hosts []string
	var life time.Duration
	c := &cobra.Command{
		Use:     "issue",
		Short:   "Issue a certificate for an agent, a person or a server",
		Example: "  falcon certs issue --role agent --name n1",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := certsIssue(dir, auth.Request{Role: auth.Role(role), Name: name, Hosts: hosts, Life: life}); err != nil {
				return err
			}
			f := auth.FilesIn(dir, name)
			fmt.Fprintf(c.OutOrStdout(), "%s\n%s\n", f.Cert, f.Key)
			return nil
		},
	}
	certsDirFlag(c, &dir)
	c.Flags().StringVar(&role, "role", "", "agent, viewer, operator, approver, admin or server")
	c.Flags().StringVar(&name, "name", "", "the node that an agent speaks for, or a person's name")
	c.Flags().StringSliceVar(&hosts, "host", nil, "for a server: name or address under which it is reached")
	c.Flags().DurationVar(&life, "life", auth.LeafLife, "how long the certificate is good")
	return c
}

func certsIssue(dir string, q auth.Request) error {
	if _, err := auth.ParseRole(string(q.Role)); err != nil {
		return fmt.Errorf("%w: --role: %w", errUsage, err)
	}
	if err := auth.CheckName(q.Name); err != nil {
		return fmt.Errorf("%w: --name: %w", errUsage, err)
	}
	if q.Life <= 0 {
		return fmt.Errorf("%w: --life must be longer than nothing", errUsage)
	}
	ca, err := auth.OpenCA(dir)
	if err != nil {
		return err
	}
	return ca.IssueTo(dir, q, time.Now())
}
