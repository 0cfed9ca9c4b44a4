package ranktable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// The second implementation: encoding/json and plain structs.
type (
	jsonTable struct {
		Status  string       `json:"status"`
		Version string       `json:"version"`
		Count   string       `json:"server_count"`
		Servers []jsonServer `json:"server_list"`
		Pods    []jsonPod    `json:"super_pod_list,omitempty"`
	}
	jsonServer struct {
		ID        string       `json:"server_id"`
		HostIP    string       `json:"host_ip,omitempty"`
		Container string       `json:"container_ip,omitempty"`
		Hardware  string       `json:"hardware_type,omitempty"`
		Devices   []jsonDevice `json:"device"`
	}
	jsonDevice struct {
		ID         string `json:"device_id"`
		IP         string `json:"device_ip,omitempty"`
		SuperID    string `json:"super_device_id,omitempty"`
		Port       string `json:"device_port,omitempty"`
		BackupIP   string `json:"backup_device_ip,omitempty"`
		BackupPort string `json:"backup_device_port,omitempty"`
		HostPort   string `json:"host_port,omitempty"`
		Rank       string `json:"rank_id"`
	}
	jsonPod struct {
		ID      string          `json:"super_pod_id"`
		Servers []jsonPodServer `json:"server_list"`
	}
	jsonPodServer struct {
		ID string `json:"server_id"`
	}
)

func plain(t Table) jsonTable {
	out := jsonTable{Status: "completed", Version: t.Version, Count: strconv.Itoa(len(t.Servers))}
	for _, s := range t.Servers {
		j := jsonServer{ID: s.ID, HostIP: s.HostIP, Container: s.ContainerIP, Hardware: s.HardwareType}
		for _, d := range s.Devices {
			j.Devices = append(j.Devices, jsonDevice{d.ID, d.IP, d.SuperID, d.Port, d.BackupIP, d.BackupPort, d.HostPort, strconv.Itoa(int(d.Rank))})
		}
		out.Servers = append(out.Servers, j)
	}
	for _, p := range t.Pods {
		j := jsonPod{ID: p.ID}
		for _, s := range p.Servers {
			j.Servers = append(j.Servers, jsonPodServer{s})
		}
		out.Pods = append(out.Pods, j)
	}
	return out
}

// byJSON reads with encoding/json what Decode accepted.
func byJSON(b []byte) (Table, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var j jsonTable
	if err := dec.Decode(&j); err != nil {
		return Table{}, err
	}
	t := Table{Version: j.Version}
	for _, s := range j.Servers {
		v := Server{ID: s.ID, HostIP: s.HostIP, ContainerIP: s.Container, HardwareType: s.Hardware}
		for _, d := range s.Devices {
			r, err := strconv.Atoi(d.Rank)
			if err != nil {
				return Table{}, err
			}
			v.Devices = append(v.Devices, Device{d.ID, d.IP, falcon.Rank(r), d.SuperID, d.Port, d.BackupIP, d.BackupPort, d.HostPort})
		}
		t.Servers = append(t.Servers, v)
	}
	for _, p := range j.Pods {
		v := Pod{ID: p.ID}
		for _, s := range p.Servers {
			v.Servers = append(v.Servers, s.ID)
		}
		t.Pods = append(t.Pods, v)
	}
	return t, nil
}

// random is any table that passes Check.
func random(rng *rand.Rand) Table {
	t := Table{Version: []string{V10, V12}[rng.IntN(2)]}
	text := func() string {
		return []string{"", "10.0.0.1", "é\"\\\n", "a<b>&c", "\u2028", "9"}[rng.IntN(6)]
	}
	var ranks []falcon.Rank
	servers := 1 + rng.IntN(6)
	for i := range servers {
		s := Server{ID: fmt.Sprintf("n%d%s", i, text()), HostIP: text(), ContainerIP: text(), HardwareType: text()}
		for k := range 1 + rng.IntN(4) {
			d := Device{ID: strconv.Itoa(k) + text(), IP: text()}
			if t.Version == V12 {
				d.SuperID, d.Port, d.BackupIP, d.BackupPort, d.HostPort = text(), text(), text(), text(), text()
			}
			s.Devices = append(s.Devices, d)
			ranks = append(ranks, falcon.Rank(len(ranks)))
		}
		t.Servers = append(t.Servers, s)
	}
	rng.Shuffle(len(ranks), func(i, j int) { ranks[i], ranks[j] = ranks[j], ranks[i] })
	for _, s := range t.Servers {
		for k := range s.Devices {
			s.Devices[k].Rank, ranks = ranks[0], ranks[1:]
		}
	}
	if t.Version == V12 && rng.IntN(2) == 0 {
		t.Pods = []Pod{{ID: "0"}}
		for _, s := range t.Servers {
			t.Pods[0].Servers = append(t.Pods[0].Servers, s.ID)
		}
	}
	return t
}

func TestBothDecodersAgree(t *testing.T) {
	for seed := uint64(0); seed < 2000; seed++ {
		want := random(rand.New(rand.NewPCG(seed, 1)))
		ours, err := Encode(want)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		theirs, err := json.MarshalIndent(plain(want), " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{ours, theirs} {
			got, err := Decode(b)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %v\n%s\n%+v\n%+v", seed, err, b, got, want)
			}
			again, err := byJSON(b)
			if err != nil || !reflect.DeepEqual(again, want) {
				t.Fatalf("seed %d: encoding/json: %v\n%s\n%+v", seed, err, b, again)
			}
		}
	}
}

const good = `{"status":"completed","version":"1.0","server_count":"1","server_list":[{"server_id":"a","device":[{"device_id":"0","device_ip":"10.0.0.1","rank_id":"0"},{"device_id":"1","rank_id":"1"}]}]}`

func TestBadTables(t *testing.T) {
	if _, err := Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{
		{`completed`, `initializing`, "initializing"},
		{`completed`, `done`, `status "done"`},
		{`"1.0"`, `"2.0"`, `version "2.0"`},
		{`"1.0"`, `1`, `'"' is missing`},
		{`"server_count":"1"`, `"server_count":"2"`, "server_count is 2, server_list has 1"},
		{`"server_count":"1"`, `"server_count":"01"`, `"01" is no number`},
		{`"server_count":"1"`, `"server_count":"99999999999999999999"`, "no number"},
		{`"server_id":"a"`, `"server_id":""`, "empty"},
		{`"server_id":"a"`, `"server_id":"` + strings.Repeat("a", 64) + `"`, "longer than 63"},
		{`"server_id":"a"`, `"server_id":"a","server_id":"b"`, `"server_id" is there twice`},
		{`"server_id":"a"`, `"server_id":"a","rack":"b"`, `no field "rack"`},
		{`"server_id":"a"`, `"Server_id":"a"`, `no field "Server_id"`},
		{`"device_id":"1"`, `"device_id":"0"`, `device_id "0" of server "a"`},
		{`"rank_id":"1"`, `"rank_id":"0"`, "rank_id 0"},
		{`"rank_id":"1"`, `"rank_id":"2"`, "rank_id 2"},
		{`,"rank_id":"1"`, ``, "rank_id -1"},
		{`"rank_id":"1"`, `"rank_id":"1","device_port":"3"`, "fields of version 1.2"},
		{`"rank_id":"1"`, `"rank_id":"-1"`, `"-1" is no number`},
		{`]}]}`, `]}],"super_pod_list":[{"super_pod_id":"0","server_list":[]}]}`, "super_pod_list belongs"},
		{`]}]}`, `]}]} {}`, "more follows"},
		{`]}]}`, `]}]}` + "\x00", "more follows"},
		{`]}]}`, `]}`, "']' is missing"},
		{`10.0.0.1`, "\xff", "UTF-8"},
		{`10.0.0.1`, "\n", "control character"},
		{`10.0.0.1`, `\x`, "a string is none"},
		{`"10.0.0.1`, `"\`, ""},
		{good, ``, "'{' is missing"},
		{good, `[]`, "'{' is missing"},
	} {
		text := strings.Replace(good, c[0], c[1], 1)
		_, err := Decode([]byte(text))
		if text == good || !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), c[2]) || strings.ContainsAny(err.Error(), "\n\x1b\x00") {
			t.Errorf("%s: %v; want %q", text, err, c[2])
		}
	}
	if _, err := Decode([]byte(strings.Replace(good, "completed", "initializing", 1))); !errors.Is(err, ErrInitializing) {
		t.Errorf("%v", err)
	}
	if _, err := Read(strings.NewReader(good)); err != nil {
		t.Error(err)
	}
}

func TestBadPods(t *testing.T) {
	base := Table{Version: V12, Servers: []Server{{ID: "a", Devices: []Device{{ID: "0"}}}}}
	for want, pods := range map[string][]Pod{
		`super_pod_id ""`:        {{}},
		"there twice":            {{ID: "0"}, {ID: "0"}},
		`"b", which is not in`:   {{ID: "0", Servers: []string{"b"}}},
		`super-pod "1" has serv`: {{ID: "0", Servers: []string{"a"}}, {ID: "1", Servers: []string{"a"}}},
	} {
		base.Pods = pods
		if err := base.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// Names that are no text must not become one another.
func TestNoTextIsRefused(t *testing.T) {
	if _, err := Encode(Table{Version: V10, Servers: []Server{{ID: "\xff", Devices: []Device{{ID: "0"}}}}}); !errors.Is(err, ErrTable) {
		t.Errorf("%v", err)
	}
}

func TestBuild(t *testing.T) {
	p := falcon.Placement{"b.g1", "b.g0", "a.g0", "b.g2"}
	addresses := map[falcon.Node]Address{"b": {HostIP: "10.0.0.2", DeviceIPs: []string{"10.1.0.2"}, SuperDeviceID: []string{"7"}}}
	got, err := Build(p, addresses)
	want := Table{Version: V10, Servers: []Server{
		{ID: "b", HostIP: "10.0.0.2", Devices: []Device{{ID: "1", IP: "10.0.0.2", Rank: 0}, {ID: "0", IP: "10.1.0.2", Rank: 1}, {ID: "2", IP: "10.0.0.2", Rank: 3}}},
		{ID: "a", Devices: []Device{{ID: "0", Rank: 2}}},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	back, err := got.Placement()
	if err != nil || !slices.Equal(back, p) {
		t.Errorf("%v, %v", back, err)
	}
	addresses["a"] = Address{SuperPod: "p"}
	if got, err = Build(p, addresses); err != nil || got.Version != V12 || got.Servers[0].Devices[1].SuperID != "7" || !reflect.DeepEqual(got.Pods, []Pod{{ID: "p", Servers: []string{"a"}}}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []falcon.Placement{{}, {"a.g0", "a.g0"}, {"a"}, {".g0"}} {
		if _, err := Build(bad, nil); !errors.Is(err, ErrTable) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(good))
	for seed := range uint64(8) {
		b, err := Encode(random(rand.New(rand.NewPCG(seed, 2))))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrTable) {
				t.Errorf("%v", err)
			}
			return
		}
		theirs, err := byJSON(b)
		if err != nil || !reflect.DeepEqual(normal(theirs), normal(got)) {
			t.Fatalf("encoding/json reads it otherwise: %v\n%+v\n%+v", err, theirs, got)
		}
		ours, err := Encode(got)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Decode(ours); err != nil || !reflect.DeepEqual(normal(again), normal(got)) {
			t.Fatalf("%v\n%+v\n%+v", err, again, got)
		}
	})
}

// normal makes empty lists and absent ones alike.
func normal(t Table) Table {
	if len(t.Pods) == 0 {
		t.Pods = nil
	}
	for i := range t.Pods {
		if len(t.Pods[i].Servers) == 0 {
			t.Pods[i].Servers = nil
		}
	}
	return t
}
