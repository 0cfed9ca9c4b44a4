package shapetest

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

var (
	ownJSON = reflect.TypeFor[json.Marshaler]()
	ownText = reflect.TypeFor[encoding.TextMarshaler]()
)

// OfJSON lists the fields of a Go value as encoding/json writes them: one line per field,
// with the kind of its value. A type that writes itself is one line.
func OfJSON(name string, value any) []string {
	w := walk{}
	w.addType(name, reflect.TypeOf(value))
	return w.lines
}

type walk struct {
	lines []string
	open  []reflect.Type
}

func (w *walk) addType(path string, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case writesItself(t, ownJSON):
		w.addLine(path, "json")
	case writesItself(t, ownText):
		w.addLine(path, "text")
	case t.Kind() == reflect.Struct && slices.Contains(w.open, t):
		w.addLine(path, "again")
	case t.Kind() == reflect.Struct:
		w.open = append(w.open, t)
		w.addFields(path, t)
		w.open = w.open[:len(w.open)-1]
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		w.addLine(path, "bytes")
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		w.addType(path+"[]", t.Elem())
	case t.Kind() == reflect.Map:
		w.addType(path+"{"+t.Key().Kind().String()+"}", t.Elem())
	default:
		w.addLine(path, t.Kind().String())
	}
}

func writesItself(t, how reflect.Type) bool {
	return t.Implements(how) || reflect.PointerTo(t).Implements(how)
}

func (w *walk) addLine(path, kind string) {
	w.lines = append(w.lines, path+" "+kind)
}

func (w *walk) addFields(path string, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "":
			w.addType(path, f.Type)
		case name == "":
			w.addType(path+"."+f.Name, f.Type)
		default:
			w.addType(path+"."+name, f.Type)
		}
	}
}
