package lab

import (
	"fmt"
	"net"
	"strconv"
)

// OwnTraining is a user's own training command in place of the lab's trainer. Its ranks find RANK,
// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT as torchrun would set them.
type OwnTraining struct {
	Command []string // words; the first is the program
	Env     []string // of every rank, "NAME=value": what its framework runs on without a GPU
	Peak    float64  // modelled operations per second of one GPU
	port    int      // of its rendezvous
}

// choosePort takes a free port for the rendezvous of the ranks.
func (t *OwnTraining) choosePort() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("lab: no port for the ranks' rendezvous: %w", err)
	}
	defer l.Close()
	t.port = l.Addr().(*net.TCPAddr).Port
	return nil
}

// environment is what the ranks of the command find besides the lab's own variables; lines says
// where they write what the lab reads.
func (t *OwnTraining) environment(lines string) []string {
	return append([]string{"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(t.port), "NCCL_SOCKET_IFNAME=lo", "FALCON_LOG=" + lines}, t.Env...)
}
