package outage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

// SerialStore is the store's establishment as the paper's baseline has it
// (FlashRecovery §III-D): one client after the other connects and counts itself
// in. It returns how long n of them took.
func SerialStore(address string, n int, patience time.Duration) (time.Duration, error) {
	begin := time.Now()
	for range n {
		c, err := storetest.Dial(address, storetest.Current, patience)
		if err != nil {
			return 0, err
		}
		_, err = c.Add("/serial", 1)
		if err = errors.Join(err, c.Abort()); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// entry is what a device tells the master of itself.
type entry struct {
	Device string `json:"device_id"`
	IP     string `json:"device_ip"`
	Rank   string `json:"rank_id"`
}

// CollectAndBroadcast is the rank table's update as the paper's baseline has it:
// the master takes every device's entry, makes the table, and sends all of it
// to every device, one after the other, over loopback TCP. It returns how long
// that took, and the bytes sent.
func CollectAndBroadcast(n int) (took time.Duration, sent int64, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	begin := time.Now()
	all := make([]entry, n)
	for i := range n {
		if err := collect(l, i, &all[i]); err != nil {
			return 0, 0, err
		}
	}
	table, err := json.Marshal(all)
	if err != nil {
		return 0, 0, err
	}
	for range n {
		if err := broadcast(l, table); err != nil {
			return 0, 0, err
		}
		sent += int64(len(table))
	}
	return time.Since(begin), sent, nil
}

// pair connects a device with the master. What is left of the connection at its
// end is dropped, so that ports do not run out.
func pair(l net.Listener) (device, master *net.TCPConn, err error) {
	d, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	m, err := l.Accept()
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	device, master = d.(*net.TCPConn), m.(*net.TCPConn)
	return device, master, errors.Join(device.SetLinger(0), master.SetLinger(0))
}

func collect(l net.Listener, i int, out *entry) error {
	device, master, err := pair(l)
	if err != nil {
		return err
	}
	e := entry{fmt.Sprint(i % perNode), fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), fmt.Sprint(i)}
	err = json.NewEncoder(device).Encode(e)
	if err == nil {
		err = json.NewDecoder(master).Decode(out)
	}
	return errors.Join(err, device.Close(), master.Close())
}

func broadcast(l net.Listener, table []byte) error {
	device, master, err := pair(l)
	if err != nil {
		return err
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := master.Write(table)
		wrote <- err
	}()
	_, err = io.CopyN(io.Discard, device, int64(len(table)))
	return errors.Join(err, <-wrote, device.Close(), master.Close())
}

// Vanilla is a simulated restart of everything: the serial store and the
// collected table as the paper measured them, and a tail: the slowest of n
// starts, each Pareto distributed, by its median (seconds)
//
//	Scale · (n / ln 2)^(1/Alpha)
//
// Alpha below 1 means that a start has no finite mean: a description of three
// points, not a law.
type Vanilla struct{ Scale, Alpha float64 }

// point is a figure at a number of devices.
type point struct{ devices, seconds float64 }

// Figures of the paper: table II; table I, first row; fig. 10, serialized, read
// off the plot.
var (
	paperRestart = []point{{1824, 231}, {3936, 801}, {5472, 1115}}
	paperTable   = []point{{1000, 8}, {4000, 31}, {8000, 60}, {16000, 176}, {18000, 249}}
	paperStore   = []point{{1000, 10}, {2000, 20}, {4000, 170}, {8000, 430}, {10000, 780}}
)

// between interpolates on straight lines, and goes on along the outermost ones.
func between(p []point, devices float64) float64 {
	i := 1
	for i < len(p)-1 && devices > p[i].devices {
		i++
	}
	a, b := p[i-1], p[i]
	return a.seconds + (b.seconds-a.seconds)*(devices-a.devices)/(b.devices-a.devices)
}

func overheads(devices float64) float64 {
	return between(paperStore, devices) + between(paperTable, devices)
}

// FitVanilla makes the tail go through the first two points of table II.
func FitVanilla() Vanilla {
	a, b := paperRestart[0], paperRestart[1]
	ra, rb := a.seconds-overheads(a.devices), b.seconds-overheads(b.devices)
	v := Vanilla{Alpha: math.Log(b.devices/a.devices) / math.Log(rb/ra)}
	v.Scale = ra / math.Pow(a.devices/math.Ln2, 1/v.Alpha)
	return v
}

// Restart is the simulated time in seconds until all n devices have started.
func (v Vanilla) Restart(n int) float64 {
	return overheads(float64(n)) + v.Scale*math.Pow(float64(n)/math.Ln2, 1/v.Alpha)
}

// Prediction is the third point of table II by the fit, and its relative error.
func (v Vanilla) Prediction() (seconds, wrong float64) {
	p := paperRestart[2]
	seconds = v.Restart(int(p.devices))
	return seconds, seconds/p.seconds - 1
}
