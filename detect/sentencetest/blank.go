// Package sentencetest replaces what people read in what machines are given, so that tests can show
// that no machine decides by it. It must not be part of a program.
package sentencetest

import (
	"reflect"
	"slices"
)

// Blank is a copy of v in which each text that is not empty is "x". Types of their own, as a node's
// name, are no texts, and neither are map keys and fields that keep names: identifiers of a thing or
// of a person. An empty text stays empty: whether something was said is a fact.
func Blank[T any](v T, keep ...string) T {
	out := reflect.New(reflect.TypeFor[T]()).Elem()
	out.Set(blank(reflect.ValueOf(&v).Elem(), keep))
	return out.Interface().(T)
}

var text = reflect.TypeFor[string]()

func blank(v reflect.Value, keep []string) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		if v.Type() == text && v.Len() > 0 {
			out.SetString("x")
		}
	case reflect.Interface:
		if !v.IsNil() {
			out.Set(blank(v.Elem(), keep))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(blank(v.Elem(), keep))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(blank(v.Index(i), keep))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMap(v.Type()))
			for at := v.MapRange(); at.Next(); {
				out.SetMapIndex(at.Key(), blank(at.Value(), keep))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && !slices.Contains(keep, f.Name) {
				out.Field(i).Set(blank(v.Field(i), keep))
			}
		}
	}
	return out
}
