package main

import (
	"errors"
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
	c.AddCommand(certsInitCommand(), certsIssueCommand(), certsRevokeCommand())
	return c
}

func certsDirFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "dir", filepath.Join(defaultStateDir(), certsName),
		"directory of the authority and its certificates")
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
			if usual := filepath.Join(defaultStateDir(), certsName); dir != usual {
				fmt.Fprintf(c.OutOrStdout(),
					"falcon serve looks in %s: name these in certs, or set FALCON_STATE_DIR\n",
					usual)
			}
			return nil
		},
	}
	certsDirFlag(c, &dir)
	c.Flags().StringSliceVar(&hosts, "host", nil,
		"name or address under which agents reach the engine (127.0.0.1 and localhost always hold)")
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
		Role:  auth.RoleServer,
		Name:  string(auth.RoleServer),
		Hosts: append([]string{"127.0.0.1", "::1", "localhost"}, hosts...),
	}, now)
}

func certsIssueCommand() *cobra.Command {
	var dir, role, name, engine string
	var hosts []string
	var life time.Duration
	var days, hours int
	c := &cobra.Command{
		Use:     "issue",
		Short:   "Issue a certificate for an agent, a person or a server",
		Example: "  falcon certs issue --role agent --name n1\n  falcon certs issue --role viewer --name dana --for head.example.org:7440   # one file, for falcon context join\n  falcon certs issue --role agent --name n1 --hours 24   # renewed by the agent itself, where the engine may",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			life, err := certsLife(c, life, days, hours)
			if err != nil {
				return err
			}
			if err := certsIssue(dir, auth.Request{
				Role:  auth.Role(role),
				Name:  name,
				Hosts: hosts,
				Life:  life,
			}); err != nil {
				return err
			}
			if engine != "" {
				return writeInvitation(c.OutOrStdout(), dir, name, engine)
			}
			f := auth.FilesIn(dir, name)
			fmt.Fprintf(c.OutOrStdout(), "%s\n%s\n", f.Cert, f.Key)
			return nil
		},
	}
	certsDirFlag(c, &dir)
	c.Flags().StringVar(&role, "role", "", "agent, viewer, operator, approver, admin or server")
	c.Flags().StringVar(&name, "name", "", "the node that an agent speaks for, or a person's name")
	c.Flags().StringVar(&engine, "for", "",
		"engine's HOST:PORT: put address, certificate and key into one file, which falcon context join takes")
	c.Flags().StringSliceVar(&hosts, "host", nil, "for a server: name or address under which it is reached")
	c.Flags().DurationVar(&life, "life", auth.LeafLife, "how long the certificate is good")
	c.Flags().IntVar(&days, "days", 0, "the same in days")
	c.Flags().IntVar(&hours, "hours", 0, "the same in hours")
	c.MarkFlagsMutuallyExclusive("life", "days", "hours")
	return c
}

// lifeDaysMost is the authority's own life: no certificate outlives it.
const lifeDaysMost = int(auth.CALife / (24 * time.Hour))

func certsLife(c *cobra.Command, life time.Duration, days, hours int) (time.Duration, error) {
	switch {
	case c.Flags().Changed("days"):
		life = time.Duration(min(max(days, -1), lifeDaysMost+1)) * 24 * time.Hour
	case c.Flags().Changed("hours"):
		life = time.Duration(min(max(hours, -1), 24*lifeDaysMost+1)) * time.Hour
	}
	if life <= 0 || life > auth.CALife {
		return 0, fmt.Errorf("%w: a certificate's life must be longer than nothing and at most %d days",
			errUsage, lifeDaysMost)
	}
	return life, nil
}

func certsRevokeCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "revoke NAME|serial:HEX",
		Short: "Revoke certificates by their name or serial number",
		Long: "Revoke all certificates of a name, or one by its serial number (openssl x509 -serial shows it).\n" +
			"The engine reads the list again within 15 seconds and ends what is open. A line removed from the\n" +
			"list is in force again; another certificate for a revoked name needs that, so revoke the serial\n" +
			"number where only a key was lost.",
		Example: "  falcon certs revoke n1\n  falcon certs revoke serial:3f2a9c",
		Args:    oneArgument("give one name, or one serial number as serial:HEX"),
		RunE: func(c *cobra.Command, args []string) error {
			path := filepath.Join(dir, auth.RevokedFile)
			added, err := auth.Revoke(
				path,
				args[0],
				time.Now().UTC().Format(time.RFC3339),
			)
			switch {
			case errors.Is(err, auth.ErrName), errors.Is(err, auth.ErrSerial):
				return fmt.Errorf("%w: %w", errUsage, err)
			case err != nil:
				return err
			case !added:
				fmt.Fprintf(c.OutOrStdout(), "%s is revoked already by %s\n", args[0], path)
			default:
				fmt.Fprintf(c.OutOrStdout(), "%s is revoked by %s\n", args[0], path)
			}
			return nil
		},
	}
	certsDirFlag(c, &dir)
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
