package ranktable

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Encode writes the table as JSON, one server a line: HCCL's order of fields,
// all values strings, empty optional ones left out. The same table is always
// the same bytes. An error wraps ErrTable.
func Encode(t Table) ([]byte, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	const server, device = 128, 96 // usual bytes
	b := make([]byte, 0, 128+server*len(t.Servers)+device*t.World())
	b = append(b, `{"status":"completed","version":`...)
	b = appendText(b, t.Version)
	b = append(b, `,"server_count":"`...)
	b = strconv.AppendInt(b, int64(len(t.Servers)), 10)
	b = append(b, "\",\"server_list\":[\n"...)
	for i, s := range t.Servers {
		b = appendServer(b, s)
		b = closeLine(b, i == len(t.Servers)-1)
	}
	b = append(b, ']')
	if len(t.Pods) > 0 {
		b = append(b, ",\"super_pod_list\":[\n"...)
		for i, p := range t.Pods {
			b = appendPod(b, p)
			b = closeLine(b, i == len(t.Pods)-1)
		}
		b = append(b, ']')
	}
	b = append(b, "}\n"...)
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("%w: a name is not UTF-8", ErrTable)
	}
	return b, nil
}

func closeLine(b []byte, last bool) []byte {
	if !last {
		b = append(b, ',')
	}
	return append(b, '\n')
}

func appendServer(b []byte, s Server) []byte {
	b = append(b, `{"server_id":`...)
	b = appendText(b, s.ID)
	b = appendField(b, "host_ip", s.HostIP)
	b = appendField(b, "container_ip", s.ContainerIP)
	b = appendField(b, "hardware_type", s.HardwareType)
	b = append(b, `,"device":[`...)
	for i, d := range s.Devices {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendDevice(b, d)
	}
	return append(b, "]}"...)
}

func appendDevice(b []byte, d Device) []byte {
	b = append(b, `{"device_id":`...)
	b = appendText(b, d.ID)
	b = appendField(b, "device_ip", d.IP)
	b = appendField(b, "super_device_id", d.SuperID)
	b = appendField(b, "device_port", d.Port)
	b = appendField(b, "backup_device_ip", d.BackupIP)
	b = appendField(b, "backup_device_port", d.BackupPort)
	b = appendField(b, "host_port", d.HostPort)
	b = append(b, `,"rank_id":"`...)
	b = strconv.AppendInt(b, int64(d.Rank), 10)
	return append(b, `"}`...)
}

func appendPod(b []byte, p Pod) []byte {
	b = append(b, `{"super_pod_id":`...)
	b = appendText(b, p.ID)
	b = append(b, `,"server_list":[`...)
	for i, s := range p.Servers {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"server_id":`...)
		b = appendText(b, s)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

func appendField(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendText(b, value)
}

// appendText quotes s; names are plain ASCII as a rule.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendQuoted(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// appendQuoted quotes any text; what is not UTF-8 stays as it is, for Encode to
// see: JSON's own way is to replace it, and then two names may become one.
func appendQuoted(b []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil || !utf8.ValidString(s) {
		return append(b, s...)
	}
	return append(b, quoted...)
}
