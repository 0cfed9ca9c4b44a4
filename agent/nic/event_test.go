package nic

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFallsAreToldOnce(t *testing.T) {
	var f fall
	at := time.Unix(1000, 0)
	var announced []int
	see := func(second int, active bool) {
		if down, tell := f.update(active, at.Add(time.Duration(second)*time.Second), 5*time.Second); tell {
			if announced = append(announced, second); down < 5*time.Second {
				t.Errorf("announced after %v", down)
			}
		}
	}
	for s := range 10 { // never up: nothing has failed
		see(s, false)
	}
	see(10, true)
	for s := 11; s < 30; s++ {
		see(s, false)
	}
	see(30, true)
	see(31, false) // a flap
	see(33, true)
	for s := 34; s < 60; s++ {
		see(s, false)
	}
	if len(announced) != 2 || announced[0] != 16 || announced[1] != 39 {
		t.Fatalf("announced at %v, want 16 and 39", announced)
	}
}

func TestPortsThatFall(t *testing.T) {
	s := newTree(t)
	dir := s.rdma("mlx5_0", 1)
	var got []Event
	p := prober()
	p.cfg.Down = time.Nanosecond
	p.cfg.Event = func(e Event) { got = append(got, e) }
	s.look(p)
	s.put(dir+"state", "1: DOWN")
	s.look(p)
	s.look(p)
	if len(got) != 1 ||
		got[0].NIC != "n1.nic0" ||
		got[0].AtNs == 0 ||
		!strings.Contains(got[0].Text, "mlx5_0") {
		t.Fatalf("events %+v", got)
	}
	s.put(dir+"state", "4: ACTIVE")
	s.look(p)
	if err := os.Remove(filepath.Join(s.root, dir, "state")); err != nil {
		t.Fatal(err)
	}
	s.look(p)
	s.look(p)
	if len(got) != 1 {
		t.Fatalf("a state that can't be read was reported: %+v", got[1:])
	}
	p.ports[0].device = "gone"
	s.look(p)
	s.look(p)
	if len(got) != 2 {
		t.Fatal("a port that is gone was not told")
	}
}
