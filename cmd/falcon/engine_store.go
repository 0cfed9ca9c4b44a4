package main

import (
	"fmt"
	"log/slog"

	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/tcpstore"
	"github.com/failslow/falcon/backend/tcpstore/keeper"
)

// storeConfig is the rendezvous store that the engine keeps for the job, in a
// process of its own.
type storeConfig struct {
	Listen string `yaml:"listen"` // HOST:PORT; "" = none
	// an address that other machines reach is meant: the protocol does not authenticate
	Exposed   bool  `yaml:"exposed"`
	BudgetMiB int64 `yaml:"budget_mib"` // memory of all that it holds; 0 = the default

	inProcess bool // of the engine; for tests
}

// Bounds of a store's budget, MiB.
const (
	storeBudgetLeast = 16
	storeBudgetMost  = 256 << 10
)

func (s storeConfig) validate() error {
	if s.BudgetMiB != 0 && (s.BudgetMiB < storeBudgetLeast || s.BudgetMiB > storeBudgetMost) {
		return fmt.Errorf("%w: store.budget_mib is %d; give %d to %d, 0 = %d",
			errUsage, s.BudgetMiB, storeBudgetLeast, storeBudgetMost, tcpstore.DefaultBudget>>20)
	}
	return nil
}

// rendezvous is the job's store, in whichever process.
type rendezvous interface {
	engine.Store
	Addr() string
	Close() error
}

// openStore starts the store; nil where none is configured.
func (s storeConfig) openStore(log *slog.Logger) (rendezvous, error) {
	if s.Listen == "" {
		return nil, nil
	}
	out, err := s.startStore(log)
	if err != nil {
		return nil, fmt.Errorf("store.listen: %w", err)
	}
	return out, nil
}

func (s storeConfig) startStore(log *slog.Logger) (rendezvous, error) {
	if s.inProcess {
		return tcpstore.Listen(s.Listen, tcpstore.Options{
			Exposed: s.Exposed,
			Budget:  s.BudgetMiB << 20,
			Log:     log,
		})
	}
	return keeper.Open(keeper.Options{
		Address: s.Listen,
		Exposed: s.Exposed,
		Budget:  s.BudgetMiB << 20,
		Log:     log,
	})
}
