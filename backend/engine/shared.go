package engine

import (
	"log/slog"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/outbox"
)

// shared is what all parts of the engine read, and the machines that they feed.
type shared struct {
	cfg     Config
	log     *slog.Logger
	state   *journalState // what the journal says
	job     *job          // what agents say of the job's processes
	nodes   *fleet.Registry
	cluster *clusterView
	det     Detector
	plan    Planner
	rec     Recoverer
	batch   *batch
	oplog   *operatorLog
	outbox  *outbox.Box
	orders  *orderBook
	learner *learner
}

func newShared(cfg Config, mem *journalState) *shared {
	s := &shared{
		cfg:    cfg,
		log:    cfg.Log,
		state:  mem,
		job:    newJob(),
		nodes:  fleet.NewRegistry(),
		det:    cfg.Detector,
		plan:   cfg.Planner,
		rec:    cfg.Recoverer,
		batch:  newBatch(mem),
		outbox: &outbox.Box{},
	}
	s.learner = &learner{shared: s}
	s.orders = newOrderBook(s.outbox, mem.orders, mem.lostOrders)
	s.cluster = &clusterView{
		cfg:      &s.cfg,
		state:    mem,
		job:      s.job,
		nodes:    s.nodes,
		attached: map[falcon.Node]time.Time{},
		left:     leftovers{},
	}
	s.oplog = newOperatorLog(&s.cfg, s.det, s.batch)
	s.job.remember(mem.job)
	return s
}
