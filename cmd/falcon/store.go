package main

import (
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/backend/tcpstore"
	"github.com/failslow/falcon/backend/tcpstore/keeper"
)

func storeCommand() *cobra.Command {
	var listen string
	var o tcpstore.Options
	var inherited bool
	c := &cobra.Command{
		Use:   "store",
		Short: "Run the rendezvous store alone, for any PyTorch job",
		Long: `Run the rendezvous store alone, for any PyTorch job: it speaks the protocol of
PyTorch's TCPStore (1.13 to today). Start the job's processes with MASTER_ADDR
and MASTER_PORT of this store and TORCHELASTIC_USE_AGENT_STORE=True, so that none
of them serves it itself.

Nobody is asked who he is: the protocol has no authentication. Whoever reaches
the address can read and change everything in it. What it holds is bounded by
--budget; beyond that it refuses.`,
		Example: "  falcon store --listen 127.0.0.1:29500",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Log = loggerTo(c.ErrOrStderr())
			if inherited {
				return keeper.Serve(o)
			}
			return serveStore(c, listen, o)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:29500", "HOST:PORT to listen on, port 0 = any")
	c.Flags().BoolVar(&o.Exposed, "insecure-listen", false, "allow an address that other machines can reach")
	c.Flags().Uint64Var(&o.Generation, "generation", 0,
		"refuse keys of older attempts (TORCHELASTIC_RESTART_COUNT) than this")
	c.Flags().IntVar(&o.MaxConns, "max-clients", 0,
		"connections at most; 0 = 65536, or as many as there are descriptors")
	c.Flags().IntVar(&o.MaxPerAddress, "max-clients-per-address", 0,
		"connections of one address at most; 0 = 4096, and no bound for this machine")
	c.Flags().Int64Var(&o.Budget, "budget", tcpstore.DefaultBudget,
		"bytes of memory for everything that it holds; each connection counts 8 KiB")
	c.Flags().BoolVar(&inherited, "inherited", false, "serve for the engine that started this process")
	_ = c.Flags().MarkHidden("inherited")
	return c
}

// serveStore runs until a signal asks for a stop.
func serveStore(c *cobra.Command, listen string, o tcpstore.Options) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if o.Budget < storeBudgetLeast<<20 ||
		o.Budget > storeBudgetMost<<20 ||
		o.MaxConns < 0 ||
		o.MaxPerAddress < 0 {
		return fmt.Errorf(
			"%w: --budget is %d, --max-clients %d and --max-clients-per-address %d; give %d to %d bytes, and numbers of clients from 0 on",
			errUsage, o.Budget, o.MaxConns, o.MaxPerAddress, storeBudgetLeast<<20, storeBudgetMost<<20,
		)
	}
	s, err := tcpstore.Listen(listen, o)
	if err != nil {
		return storeAddress(err)
	}
	tcpstore.LimitMemory(o.Budget)
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
