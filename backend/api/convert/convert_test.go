package convert

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Fields without a counterpart on the other side, with the reason.
var (
	domainOnly = map[string]string{
		"Execution.OrderID":               "of the planner alone",
		"Plan.Base":                       "of the planner alone",
		"Plan.Home":                       "of the planner alone",
		"Execution.Launches":              "of the planner alone",
		"Execution.StoppedUnixNs":         "of the planner alone",
		"Recovery.JobEpoch":               "of the recovery machine alone",
		"RecoveryPlan.Placement":          "as long as the job has ranks, and known from RankView.device",
		"RecoveryExecution.Pending":       "of the recovery machine alone",
		"RecoveryExecution.Launched":      "of the recovery machine alone",
		"RecoveryPlan.Splits":             "in Job.micro_batches once in force",
		"RecoveryExecution.FailedRejoins": "of the recovery machine alone",
		"Fault.AskedBy":                   "in the audit line",
		"Shrink.Layout":                   "in Job once in force",
		"Shrink.Placement":                "in RankView.device once in force",
		"Shrink.Splits":                   "in Job.micro_batches once in force",
		"ValidationAsk.GEMM":              "results name the ranks",
		"ValidationAsk.Rings":             "results name the links",
		"ValidationAsk.Trees":             "results name the links",
		"ValidationAsk.Pairs":             "results name the links",
		"ValidationAsk.Question":          "of the detector alone",
		"Validation.Bar":                  "of the detector alone: what was not allowed has no record",
		"RankProfile.Window":              "in Profile, which holds the message",
		"Comm.Dimension":                  "found by the engine over all ranks",
		"HostReading.Node":                "proven by the sender's certificate",
	}
	wireOnly = map[string]string{
		"Policy.version":               "an argument",
		"Comm.unseen":                  "of the agent, for the alarm",
		"OrderCommand.generation":      "of the order's envelope in the engine",
		"RankProfile.columns":          "another form of calls, see TestColumnsKeepCalls",
		"UnseenRank.hooked":            "of agents that give no reason",
		"Validation.now":               "progress, of the validator",
		"Recovery.ranks":               "progress, of the engine",
		"Recovery.lost_gpu_hours":      "of its time and ranks, by the engine",
		"Incident.onset_unix_ns":       "estimated by the engine, from its history",
		"Incident.end_unix_ns":         "of the engine's history",
		"Incident.first_onset_unix_ns": "of the engine's history",
		"Action.proposed_unix_ns":      "of the engine's journal",
		"Action.applied_unix_ns":       "of the engine's journal",
		"Action.reverted_unix_ns":      "of the engine's journal",
	}
	// ownShape are messages that no value of the vocabulary stands for.
	ownShape = strings.Fields(
		`AgentFrame Build Format Goodbye RenewRequest RenewReply Hello Standing Standbys Seen EngineName Beat RankBeat DeviceEvent RankState Commitment Park
		Samples Profile Telemetry CommandResult RankAck EngineFrame Welcome Ack Ask Calls RankCalls CommCalls Call Command LaunchCommand SuspendCommand TableCommand
		RejoinCommand RankSeat StopCommand RankLaunch PauseCommand RankCut CommLimit RankPause CommCount PeerCount TestCommand RankTest
		TestResult ProfileCommand CallColumns CallClass SnapshotRequest SnapshotReply Brief Operator RankColumns Column Recurrence Job RankView NodeView Series Recent Mark Moment
		EventLine Audit WatchRequest Event DecideRequest DecideReply SetPolicyRequest SetPolicyReply IncidentsRequest ValidationNow
		RankPair JobEnd Statement ValidateRequest ValidateReply IncidentsReply RankRecovery RecoveriesRequest RecoveriesReply Exposure RecoverRequest
		RecoverReply Bar HistoryRequest HistoryReply ProbeRequest ProbeReply TriageRequest TriageReply Triage TriageNote Peek Peeked PeekPart PeekRequest PeekReply KernelNotes KernelNote PastIncident CauseCount JobCauses JobCategory Spread PastJob Culprit Silicon SiliconFinding FailStop PathRow
		ChangeDecision FilterState RemovedIteration`,
	)
)

// pair is a value of the vocabulary and the message that carries it.
type pair struct {
	value   any
	message proto.Message
	to      func(any) proto.Message
	from    func(proto.Message) any
}

func pairOf[V any, M proto.Message](to func(V) M, from func(M) V) pair {
	var v V
	var m M
	return pair{
		v, m.ProtoReflect().Type().New().Interface(),
		func(v any) proto.Message { return to(v.(V)) },
		func(m proto.Message) any { return from(m.(M)) },
	}
}

// Whatever is reached from one of these is compared with it.
var pairs = []pair{
	pairOf(ActionToProto, ActionFromProto),
	pairOf(LadderToProto, LadderFromProto),
	pairOf(OrderToProto, OrderFromProto),
	pairOf(IncidentToProto, IncidentFromProto),
	pairOf(RecoveryToProto, RecoveryFromProto),
	pairOf(HangToProto, HangFromProto),
	pairOf(ValidationToProto, ValidationFromProto),
	pairOf(UnprovenToProto, UnprovenFromProto),
	pairOf(SampleToProto, SampleFromProto),
	pairOf(CommToProto, CommFromProto),
	pairOf(TrafficToProto, TrafficFromProto),
	pairOf(declaredToProto, CanFromProto),
	pairOf(RaisedToProto, RaisedFromProto),
	pairOf(GPUToProto, GPUFromProto),
	pairOf(NICToProto, NICFromProto),
	pairOf(HostToProto, func(m *falconv1.Host) falcon.HostReading {
		return HostFromProto("", m)
	}),
	pairOf(ProfileToProto, func(m *falconv1.RankProfile) falcon.RankProfile {
		return ProfileFromProto(0, m)
	}),
	pairOf(func(p falcon.Policy) *falconv1.Policy {
		return PolicyToProto(p, 0)
	}, PolicyFromProto),
}

// A value keeps every field that the contract knows on its way over the wire.
func TestValuesKeepTheirFields(t *testing.T) {
	for _, p := range pairs {
		t.Run(reflect.TypeOf(p.value).Name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := reflect.New(reflect.TypeOf(p.value)).Elem()
				fillValue(t, want)
				got := p.from(overTheWire(t, p.to(want.Interface())))
				d := cmp.Diff(
					want.Interface(),
					got,
					cmpopts.EquateEmpty(),
					cmpopts.EquateComparable(falcon.Mesh{}),
				)
				if d != "" {
					t.Fatalf("lost or changed:\n%s", d)
				}
			})
		})
	}
}

// A message keeps every field that the vocabulary knows in a client.
func TestMessagesKeepTheirFields(t *testing.T) {
	for _, p := range pairs {
		t.Run(string(p.message.ProtoReflect().Descriptor().Name()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := p.message.ProtoReflect().New()
				fillMessage(t, want)
				d := cmp.Diff(
					want.Interface(),
					p.to(p.from(want.Interface())),
					protocmp.Transform(),
				)
				if d != "" {
					t.Fatalf("lost or changed:\n%s", d)
				}
			})
		})
	}
}

func overTheWire(t *rapid.T, m proto.Message) proto.Message {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// fillValue gives every field something other than its zero value, except those
// that the contract does not know.
func fillValue(t *rapid.T, v reflect.Value) {
	if v.Type() == reflect.TypeFor[falcon.Link]() {
		v.Set(reflect.ValueOf(anyLink(t)))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString(anyText(t))
	case reflect.Int, reflect.Int32:
		v.SetInt(int64(anyInt32(t)))
	case reflect.Int64:
		v.SetInt(rapid.Int64Min(1).Draw(t, "int64"))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64Range(1, 1<<v.Type().Bits()-1).Draw(t, "uint"))
	case reflect.Float64:
		v.SetFloat(anyFloat(t))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(t, v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice {
			n := anyLength(t)
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			fillValue(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range anyLength(t) {
			k := reflect.New(v.Type().Key()).Elem()
			e := reflect.New(v.Type().Elem()).Elem()
			fillValue(t, k)
			fillValue(t, e)
			v.SetMapIndex(k, e)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if domainOnly[v.Type().Name()+"."+v.Type().Field(i).Name] == "" {
				fillValue(t, v.Field(i))
			}
		}
	default:
		t.Fatalf("a %s is not generated", v.Type())
	}
}

// fillMessage does the same for a message.
func fillMessage(t *rapid.T, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case wireOnly[fieldName(f)] != "":
		case f.IsMap():
			for range anyLength(t) {
				k := anyScalar(t, f.MapKey()).MapKey()
				m.Mutable(f).Map().Set(k, anyElement(t, f.MapValue(), m.Mutable(f).Map().NewValue))
			}
		case f.IsList():
			fillList(t, f, m.Mutable(f).List())
		default:
			m.Set(f, anyElement(t, f, func() protoreflect.Value {
				return m.NewField(f)
			}))
		}
	}
}

func fillList(t *rapid.T, f protoreflect.FieldDescriptor, l protoreflect.List) {
	switch {
	case fieldName(f) == "Action.step_ms":
		for range len(falcon.SwapSteps) {
			l.Append(anyScalar(t, f))
		}
	case f.Message() != nil && f.Message().Name() == "LinksOf": // in their order, once each
		for _, d := range sortedKeys(rapid.MapOfN(text, rapid.Bool(), 1, 3).Draw(t, "dimensions")) {
			l.Append(protoreflect.ValueOfMessage((&falconv1.LinksOf{
				Dimension: d,
				Links:     []string{anyLink(t).String()},
			}).ProtoReflect()))
		}
	default:
		for range anyLength(t) {
			l.Append(anyElement(t, f, l.NewElement))
		}
	}
}

func anyElement(
	t *rapid.T,
	f protoreflect.FieldDescriptor,
	fresh func() protoreflect.Value,
) protoreflect.Value {
	if f.Message() == nil {
		return anyScalar(t, f)
	}
	v := fresh()
	fillMessage(t, v.Message())
	return v
}

func anyScalar(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	switch fieldName(f) {
	case "CallTiming.op", "Traffic.op", "CallChange.op", "PathChoice.op", "PathChoice.algorithm",
		"PathChoice.protocol", "PathChoice.channels", "PathChoice.source":
		// an enumeration of 8 bits
		return protoreflect.ValueOfUint32(uint32(rapid.Uint8Min(1).Draw(t, "op")))
	case "Verdict.links":
		return protoreflect.ValueOfString(anyLink(t).String())
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(anyText(t))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(anyInt32(t))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64Min(1).Draw(t, "int64"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32Min(1).Draw(t, "uint32"))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64Min(1).Draw(t, "uint64"))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(anyFloat(t))
	default:
		t.Fatalf("%s: a %s is not generated", f.FullName(), f.Kind())
		return protoreflect.Value{}
	}
}

var (
	text   = rapid.StringMatching("[a-z]{1,6}")
	number = rapid.Float64Range(0.001, 1e9)
)

func anyText(t *rapid.T) string   { return text.Draw(t, "text") }
func anyFloat(t *rapid.T) float64 { return number.Draw(t, "number") }
func anyInt32(t *rapid.T) int32 {
	return rapid.Int32Min(1).Draw(t, "int32")
}

func anyLength(t *rapid.T) int {
	return rapid.IntRange(1, 3).Draw(t, "length")
}

func anyLink(t *rapid.T) falcon.Link {
	return falcon.NewLink(falcon.Node("a"+anyText(t)), falcon.Node("b"+anyText(t)))
}

func fieldName(f protoreflect.FieldDescriptor) string {
	return fmt.Sprintf("%s.%s", f.Parent().Name(), f.Name())
}

// declaredToProto is of a process that has declared something: no message says that it has not.
func declaredToProto(c falcon.Can) *falconv1.Capabilities {
	c.Declared = true
	return CanToProto(c)
}

// A new message is either compared above or said to have a shape of its own.
func TestEveryMessageIsPlaced(t *testing.T) {
	reached := map[protoreflect.Name]bool{}
	for _, p := range pairs {
		reach(p.message.ProtoReflect().Descriptor(), reached)
	}
	all := falconv1.File_falcon_v1_falcon_proto.Messages()
	for i := range all.Len() {
		name := all.Get(i).Name()
		if reached[name] == slices.Contains(ownShape, string(name)) {
			t.Errorf("message %s: compared %v, of its own shape %v; want one of the two",
				name, reached[name], !reached[name])
		}
	}
	for _, name := range ownShape {
		if all.ByName(protoreflect.Name(name)) == nil {
			t.Errorf("there is no message %s", name)
		}
	}
}

func reach(m protoreflect.MessageDescriptor, into map[protoreflect.Name]bool) {
	if into[m.Name()] {
		return
	}
	into[m.Name()] = true
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if f.Message() != nil &&
			!f.Message().IsMapEntry() &&
			wireOnly[fieldName(f)] == "" {
			reach(f.Message(), into)
		}
	}
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); f.IsMap() && f.MapValue().Message() != nil {
			reach(f.MapValue().Message(), into)
		}
	}
}

// An exemption for a field that is gone, or that is translated, is not kept.
func TestExemptionsAreOfFields(t *testing.T) {
	fields := map[string]bool{}
	for _, p := range pairs {
		domainFields(reflect.TypeOf(p.value), fields)
	}
	for name := range domainOnly {
		if !fields[name] {
			t.Errorf("there is no field %s", name)
		}
	}
	for name := range wireOnly {
		message, field, _ := strings.Cut(name, ".")
		m := falconv1.File_falcon_v1_falcon_proto.Messages().ByName(protoreflect.Name(message))
		if m == nil || m.Fields().ByName(protoreflect.Name(field)) == nil {
			t.Errorf("there is no field %s", name)
		}
	}
}

func domainFields(t reflect.Type, into map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		domainFields(t.Elem(), into)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			into[t.Name()+"."+f.Name] = true
			domainFields(f.Type, into)
		}
	}
}

// Links that another machine misnames are left out.
func TestNamesThatAreNoLinks(t *testing.T) {
	v := verdictFromProto(&falconv1.Verdict{Links: []string{"n1-n0", "rubbish", "n1-n1"}})
	if len(v.Links) != 1 || v.Links[0] != falcon.NewLink("n0", "n1") {
		t.Errorf("links %v", v.Links)
	}
	p := previewFromProto(&falconv1.Preview{
		Left: []*falconv1.LinksOf{{Dimension: "dp", Links: []string{"rubbish"}}},
	})
	if len(p.Left) != 0 {
		t.Errorf("links %v", p.Left)
	}
}

// Numbers beyond 32 bits become the nearest that fit.
func TestNumbersAreClamped(t *testing.T) {
	got := RecoveryToProto(falcon.Recovery{
		RecoveryExecution: falcon.RecoveryExecution{Attempts: 1 << 40},
	}).GetAttempts()
	if got != 1<<31-1 {
		t.Errorf("attempts %d", got)
	}
}
