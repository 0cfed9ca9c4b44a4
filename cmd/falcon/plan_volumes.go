package main

import (
	"github.com/spf13/cobra"

	"github.com/failslow/falcon/mitigate/volume"
)

func planVolumesCommand() *cobra.Command {
	return problemCommand("volumes FILE", "How much does each rank send in an iteration (FALCON, appendix 9.2)? - reads standard input",
		`  echo '{"layout":{"tp":8,"dp":16,"pp":8},"layers":96,"hidden":12288,"context":2048,"micro_batch":1,"micro_batches":96}' | falcon plan volumes -

payload_bytes is what the calls of one rank are given, sent_bytes what it puts on its
links for them by a ring: 2 (n-1)/n of an all-reduce. A rank of an inner stage; both
directions of a pipeline. Optional: ep with moe_layers and top_k, vocabulary,
heads, head_size (128), activation_bytes (2), gradient_bytes (4).`, planVolumes)
}

// volumesProblem is the input.
type volumesProblem struct {
	Layout struct {
		TP int `json:"tp"`
		DP int `json:"dp"`
		PP int `json:"pp"`
		EP int `json:"ep"`
	} `json:"layout"`
	Layers          *int `json:"layers" need:"give the layers of the model"`
	Hidden          *int `json:"hidden" need:"give the width of the model"`
	Context         *int `json:"context" need:"give the tokens of a sequence"`
	MicroBatch      *int `json:"micro_batch" need:"give the sequences of a micro-batch"`
	MicroBatches    *int `json:"micro_batches" need:"give the micro-batches of a replica in an iteration"`
	Heads           int  `json:"heads"`
	HeadSize        int  `json:"head_size"`
	Vocabulary      int  `json:"vocabulary"`
	TopK            int  `json:"top_k"`
	MoELayers       int  `json:"moe_layers"`
	ActivationBytes int  `json:"activation_bytes"`
	GradientBytes   int  `json:"gradient_bytes"`
}

// volumesPlan is the output.
type volumesPlan struct {
	Parameters float64     `json:"parameters"`
	PerGPU     float64     `json:"parameters_per_gpu"`
	Flows      []flowsPlan `json:"flows"`
}

type flowsPlan struct {
	Dimension string  `json:"dimension"`
	Op        string  `json:"op"`
	Calls     int     `json:"calls,omitempty"` // absent: as the framework buckets them
	Payload   float64 `json:"payload_bytes"`
	Sent      float64 `json:"sent_bytes"`
}

func planVolumes(p *volumesProblem) (any, error) {
	r, err := volume.Volumes(volume.Job{
		TP: p.Layout.TP, DP: p.Layout.DP, PP: p.Layout.PP, EP: p.Layout.EP, Layers: *p.Layers, Hidden: *p.Hidden, Heads: p.Heads, HeadSize: p.HeadSize,
		Vocabulary: p.Vocabulary, Context: *p.Context, MicroBatch: *p.MicroBatch, MicroBatches: *p.MicroBatches, TopK: p.TopK, MoELayers: p.MoELayers,
		ActivationBytes: p.ActivationBytes, GradientBytes: p.GradientBytes,
	})
	if err != nil {
		return nil, err
	}
	out := volumesPlan{Parameters: r.Parameters, PerGPU: r.PerGPU, Flows: []flowsPlan{}}
	for _, f := range r.Flows {
		out.Flows = append(out.Flows, flowsPlan(f))
	}
	return out, nil
}
