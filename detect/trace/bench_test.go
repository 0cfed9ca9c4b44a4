package trace

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkKineto decodes a device trace of the size of one step; memory must
// not grow with the number of events.
func BenchmarkKineto(b *testing.B) {
	var doc strings.Builder
	doc.WriteString(`{"distributedInfo":{"rank":0,"world_size":1},"traceEvents":[`)
	for i := range 20000 {
		fmt.Fprintf(&doc,
			`{"ph":"X","cat":"kernel","name":"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64","pid":0,"tid":7,"ts":%d.25,"dur":17.5,"args":{"External id":%d,"device":0,"context":1,"stream":7,"correlation":%d,"grid":[8,16,1],"block":[128,1,1]}},`,
			20*i, i, i)
	}
	text := strings.TrimSuffix(doc.String(), ",") + "]}"
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		var rec Records
		if err := rec.Add("rank0.json", strings.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
}
