package lab

import "net"

// OwnTraining is a user's own training command in place of the lab's trainer. Its ranks find RANK,
// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT as torchrun would set them.
type OwnTraining struct {
	Command []string // words; the first is the program
	Dir     string   // that the ranks run in, also those that agents start
	Env     []string // of every rank, "NAME=value": what its framework runs on without a GPU
	Peak    float64  // modelled operations per second of one GPU
	Store   string   // HOST:PORT of the ranks' rendezvous, which outlives each of them
}

// environment is what the ranks of the command find besides the lab's own variables; lines says
// where they write what the lab reads.
func (t *OwnTraining) environment(lines string) []string {
	host, port, _ := net.SplitHostPort(t.Store)
	return append([]string{
		"MASTER_ADDR=" + host, "MASTER_PORT=" + port, "TORCHELASTIC_USE_AGENT_STORE=True",
		"NCCL_SOCKET_IFNAME=lo", "GLOO_SOCKET_IFNAME=lo", "FALCON_LOG=" + lines,
	}, t.Env...)
}
