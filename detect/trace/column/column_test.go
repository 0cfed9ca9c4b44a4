package column

import "testing"

// Names as frameworks write them.
func TestRead(t *testing.T) {
	for name, want := range map[string]Meaning{
		// Times of an iteration.
		"elapsed time per iteration (ms)": {IterTime, "ms"},
		"elapsed time per iteration (s)":  {IterTime, "s"},
		"elapsed_time_per_iteration_ms":   {IterTime, "ms"},
		"train_step_timing in s":          {IterTime, "s"},
		"data.train_step_timing in s":     {Part, "s"}, // a path of JSON is read by its last name only
		"iter_time_ms":                    {IterTime, "ms"},
		"iter_time":                       {IterTime, ""},
		"step_time":                       {IterTime, ""},
		"train/step_time":                 {IterTime, ""},
		"perf/step_time_seconds":          {IterTime, "s"},
		"perf/step_time":                  {IterTime, ""},
		"timing_s/step":                   {IterTime, "s"},
		"stepTimeMs":                      {IterTime, "ms"},
		"iteration-time":                  {IterTime, ""},
		"train_step_time":                 {IterTime, ""},
		"time/iteration":                  {IterTime, ""},
		"s/it":                            {IterTime, "s"},
		"ms_per_step":                     {IterTime, "ms"},
		"batch_time":                      {IterTime, ""},
		"fast-sun-7 - train/step_time":    {IterTime, ""},
		"duration_per_step_us":            {IterTime, "us"},
		// Means, parts and statistics of them.
		"avg_step_time":             {Mean, ""},
		"train_speed(s/it)":         {Mean, "s"},
		"step_time_p99":             {Part, ""},
		"timing_s/gen":              {Part, "s"},
		"train_backward_timing":     {Part, ""},
		"validation_step_timing":    {Part, ""},
		"eval_step_time":            {Part, ""},
		"data_time":                 {Part, ""},
		"epoch_time":                {Part, ""},
		"fwd_compute_ms":            {Part, "ms"},
		"iteration-time vs samples": {Known, ""},
		// Durations.
		"ms":            {Time, "ms"},
		"time":          {Time, ""},
		"time_ms":       {Time, "ms"},
		"seconds":       {Time, "s"},
		"duration":      {Time, ""},
		"train_time":    {Time, ""},
		"time (ms)":     {Time, "ms"},
		"time in s":     {Time, "s"},
		"queue_time_ms": {Other, "ms"},
		// Rates.
		"it/s":                   {Rate, ""},
		"steps_per_second":       {Rate, ""},
		"train_steps_per_second": {Rate, ""},
		"iterations/sec":         {Rate, ""},
		"tokens/s":               {Items, ""},
		"tokens_per_sec":         {Items, ""},
		"tps":                    {Items, ""},
		"samples_per_second":     {Items, ""},
		"throughput":             {Items, ""},
		"eval_steps_per_second":  {Known, ""},
		// Clocks.
		"timestamp":               {Clock, ""},
		"_timestamp":              {Clock, ""},
		"wall_time":               {Clock, ""},
		"datetime":                {Clock, ""},
		"timestamp_ms":            {Clock, "ms"},
		"_runtime":                {Elapsed, ""},
		"elapsed_time":            {Elapsed, ""},
		"Relative Time (Process)": {Elapsed, ""},
		"total_time":              {Elapsed, ""},
		"elapsed_s":               {Elapsed, "s"},
		// Steps and ranks.
		"step":                {Step, ""},
		"Step":                {Step, ""},
		"_step":               {Step, ""},
		"global_step":         {Step, ""},
		"train/global_step":   {Step, ""},
		"time_step":           {Step, ""},
		"timestep":            {Step, ""},
		"step_time_ratio":     {Part, ""},
		"target_step_time_ms": {Part, "ms"},
		"time_step_ms":        {IterTime, "ms"},
		"iteration":           {Step, ""},
		"iter":                {Step, ""},
		"trainer/global_step": {Step, ""},
		"rank":                {Rank, ""},
		"global_rank":         {Rank, ""},
		"worker":              {Rank, ""},
		"hostname":            {Rank, ""},
		// No times.
		"loss":          {Known, ""},
		"lm loss":       {Known, ""},
		"learning_rate": {Known, ""},
		"grad_norm":     {Known, ""},
		"epoch":         {Known, ""},
		"total_steps":   {Other, ""},
		"batch_size":    {Known, ""},
		"memory(GiB)":   {Known, ""},
		"value":         {Other, ""},
		"x":             {Other, ""},
		"":              {Other, ""},
	} {
		if got := Read(name); got != want {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
	}
}

func TestUnits(t *testing.T) {
	for in, want := range map[string]float64{
		"ms": 1, "S": 1000, "seconds": 1000, "µs": 1e-3, "min": 60000, "ns": 1e-6,
	} {
		u, ok := ParseUnit(in)
		if !ok || u.ToMs() != want || u.Word() == "" {
			t.Errorf("%s: %v, %v, %g", in, u, ok, u.ToMs())
		}
	}
	if _, ok := ParseUnit("hours ago"); ok {
		t.Error("no unit")
	}
}
