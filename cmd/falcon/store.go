package main

import (
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/backend/tcpstore"
)

func storeCommand() *cobra.Command {
	var listen string
	var o tcpstore.Options
	c := &cobra.Command{
		Use:   "store",
		Short: "Run the rendezvous store alone, for any PyTorch job",
		Long: `Run the rendezvous store alone, for any PyTorch job: it speaks the protocol of
PyTorch's TCPStore (1.13 to today). Start the job's processes with MASTER_ADDR
and MASTER_PORT of this store and TORCHELASTIC_USE_AGENT_STORE=True, so that none
of them serves it itself.

Nobody is asked who he is: the protocol has no authentication. Whoever reaches
the address can read and change everything in it.`,
		Example: "  falcon store --listen 127.0.0.1:29500",
		Args:    takesNothing,
		RunE:    func(c *cobra.Command, _ []string) error { return serveStore(c, listen, o) },
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:29500", "HOST:PORT to listen on, port 0 = any")
	c.Flags().BoolVar(&o.Exposed, "insecure-listen", false, "allow an address that other machines can reach")
	c.Flags().Uint64Var(&o.Generation, "generation", 0, "refuse keys of older attempts (TORCHELASTIC_RESTART_COUNT) than this")
	c.Flags().IntVar(&o.MaxConns, "max-clients", 0, "connections at most; 0 = 65536")
	return c
}

// serveStore runs until a signal asks for a stop.
func serveStore(c *cobra.Command, listen string, o tcpstore.Options) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o.Log = logTo(c.ErrOrStderr())
	s, err := tcpstore.Listen(listen, o)
	if err != nil {
		return storeAddress(err)
	}
	fmt.Fprintln(c.OutOrStdout(), "listening on", s.Addr())
	<-ctx.Done()
	return s.Close()
}

// storeAddress makes an address that can't be used at all wrong use.
func storeAddress(err error) error {
	if errors.Is(err, tcpstore.ErrExposed) {
		return fmt.Errorf("%w: %w; --insecure-listen allows it all the same", errUsage, err)
	}
	if errors.Is(err, tcpstore.ErrAddress) {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return err
}
