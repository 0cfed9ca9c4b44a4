package flow

// pass is one forward or backward pass of a micro-batch over a chunk.
type pass struct {
	chunk, micro int
	backward     bool
}

// passOrder is the order in which a stage works: 1F1B, interleaved where a stage
// holds several chunks (Narayanan et al. 2021, figure 4). Forward passes fill the
// pipeline, then one forward and one backward pass take turns, then it drains.
func passOrder(stage, stages, chunks, micro int) []pass {
	warm := stages - 1 - stage
	if chunks > 1 {
		warm = 2*warm + (chunks-1)*stages
	}
	total := micro * chunks
	warm = min(warm, total)
	nth := func(i int, backward bool) pass {
		if chunks == 1 {
			return pass{0, i, backward}
		}
		round := stages * chunks // passes after which the chunks begin again
		p := pass{i % round / stages, i/round*stages + i%stages, backward}
		if backward {
			p.chunk = chunks - 1 - p.chunk
		}
		return p
	}
	var out []pass
	for i := range warm {
		out = append(out, nth(i, false))
	}
	for i := range total {
		if warm+i < total {
			out = append(out, nth(warm+i, false))
		}
		out = append(out, nth(i, true))
	}
	return out
}
