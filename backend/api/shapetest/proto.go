package shapetest

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// OfService lists the calls of a service and all that their messages reach.
func OfService(service protoreflect.ServiceDescriptor) []string {
	w := messages{}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		w.lines = append(w.lines,
			fmt.Sprintf("call %s takes %s%s and gives %s%s", m.FullName(),
				streamed(m.IsStreamingClient()), m.Input().FullName(),
				streamed(m.IsStreamingServer()), m.Output().FullName()),
		)
		w.addMessage(m.Input())
		w.addMessage(m.Output())
	}
	return w.lines
}

// OfMessage lists a message and all that it reaches.
func OfMessage(m protoreflect.MessageDescriptor) []string {
	w := messages{}
	w.addMessage(m)
	return w.lines
}

func streamed(on bool) string {
	if on {
		return "a stream of "
	}
	return ""
}

type messages struct {
	lines []string
	seen  map[protoreflect.FullName]bool
}

func (w *messages) isNew(name protoreflect.FullName) bool {
	if w.seen == nil {
		w.seen = map[protoreflect.FullName]bool{}
	}
	known := w.seen[name]
	w.seen[name] = true
	return !known
}

func (w *messages) addMessage(m protoreflect.MessageDescriptor) {
	if !w.isNew(m.FullName()) {
		return
	}
	for i := range m.Fields().Len() {
		w.addField(m.Fields().Get(i))
	}
}

// addField has what a field's encoding depends on, and its name, which recordings use.
func (w *messages) addField(f protoreflect.FieldDescriptor) {
	kind := f.Kind().String()
	switch {
	case f.Message() != nil:
		kind = string(f.Message().FullName())
		w.addMessage(f.Message())
	case f.Enum() != nil:
		kind = string(f.Enum().FullName())
		w.addEnum(f.Enum())
	}
	line := fmt.Sprintf("%s %d %s %s", f.FullName(), f.Number(), f.Cardinality(), kind)
	if one := f.ContainingOneof(); one != nil {
		line += fmt.Sprintf(" of %s", one.Name())
	}
	w.lines = append(w.lines, line)
}

func (w *messages) addEnum(e protoreflect.EnumDescriptor) {
	if !w.isNew(e.FullName()) {
		return
	}
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		w.lines = append(w.lines, fmt.Sprintf("%s %d", v.FullName(), v.Number()))
	}
}
