package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
)

// An origin tells where the value of a setting comes from.
type origin string

// The origins, the weakest first.
const (
	fromDefault origin = "default"
	fromFile    origin = "file"
	fromEnv     origin = "env"
	fromFlag    origin = "flag"
)

// settings are the effective settings and where each comes from.
type settings struct {
	config
	origin map[string]origin
	memory memory // that this process may take
}

// given reports whether somebody has written the setting, be it its default.
func (s settings) given(name string) bool { return s.origin[name] != fromDefault }

// A setting is one field of config.
type setting struct {
	name, help string
	field      int
}

func allSettings() []setting {
	t := reflect.TypeFor[config]()
	all := make([]setting, t.NumField())
	for i := range all {
		tag := t.Field(i).Tag
		all[i] = setting{name: tag.Get("name"), help: tag.Get("help"), field: i}
	}
	return all
}

func (s setting) env() string {
	return "METE_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// in returns a pointer to the setting's field in c: a *string, *int, *bool,
// *time.Duration or *[]string.
func (s setting) in(c *config) any {
	return reflect.ValueOf(c).Elem().Field(s.field).Addr().Interface()
}

func (s setting) copy(dst, src *config) {
	reflect.ValueOf(dst).Elem().Field(s.field).Set(reflect.ValueOf(src).Elem().Field(s.field))
}

// sources is where settings are read from beside the environment.
type sources struct {
	flags   *pflag.FlagSet
	flagged config // what the flags say
	file    string
}

// addFlags adds a flag for every setting, and --config.
func addFlags(flags *pflag.FlagSet, env environment) *sources {
	src := &sources{flags: flags, flagged: defaults(env)}
	flags.SortFlags = false
	flags.StringVar(&src.file, "config", "", "YAML `file` of settings, its keys named like the flags (METE_CONFIG)")
	for _, s := range allSettings() {
		help := fmt.Sprintf("%s (%s)", s.help, s.env())
		switch p := s.in(&src.flagged).(type) {
		case *string:
			flags.StringVar(p, s.name, *p, help)
		case *int:
			flags.IntVar(p, s.name, *p, help)
		case *bool:
			flags.BoolVar(p, s.name, *p, help)
		case *time.Duration:
			flags.DurationVar(p, s.name, *p, help)
		case *[]string:
			flags.StringSliceVar(p, s.name, *p, help)
		}
	}
	return src
}

// load reads the settings: defaults, then the file, then the environment, then
// the flags; the later one holds. The error names everything that cannot be read.
// Whether the values make sense is for check to say.
func (src *sources) load(env environment) (settings, error) {
	got := settings{config: defaults(env), origin: map[string]origin{}}
	for _, s := range allSettings() {
		got.origin[s.name] = fromDefault
	}
	file := src.file
	if !src.flags.Changed("config") {
		file, _ = env.Lookup("METE_CONFIG")
	}
	var errs []error
	if file != "" {
		errs = append(errs, got.readFile(file))
	}
	errs = append(errs, got.readEnv(env))
	for _, s := range allSettings() {
		if src.flags.Changed(s.name) {
			s.copy(&got.config, &src.flagged)
			got.origin[s.name] = fromFlag
		}
	}
	return got, errors.Join(errs...)
}

// readEnv reads the variables. An empty one counts as not set.
func (s *settings) readEnv(env environment) error {
	var errs []error
	for _, one := range allSettings() {
		name := one.env()
		text, _ := env.Lookup(name)
		if text == "" && one.name == "gogc" {
			name = "GOGC" // Go's own variable, which the default must not undo
			text, _ = env.Lookup(name)
			if text == "off" {
				text = "-1"
			}
		}
		if text == "" {
			continue
		}
		if err := parse(text, one.in(&s.config)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		s.origin[one.name] = fromEnv
	}
	return errors.Join(errs...)
}

// parse reads text into what p points to.
func parse(text string, p any) error {
	var err error
	switch p := p.(type) {
	case *string:
		*p = text
	case *int:
		*p, err = whole(text)
	case *bool:
		*p, err = yesOrNo(text)
	case *time.Duration:
		*p, err = duration(text)
	case *[]string:
		*p = strings.Split(text, ",")
		for i := range *p {
			(*p)[i] = strings.TrimSpace((*p)[i])
		}
	}
	return err
}

func whole(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", text)
	}
	return n, nil
}

func yesOrNo(text string) (bool, error) {
	switch text {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", text)
}

func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 300ms, 5s or 10m", text)
	}
	return d, nil
}

// readFile reads the file. It is one YAML mapping; a key that is unknown or
// written twice, a value of another type, a second document are errors with their
// position.
func (s *settings) readFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	top, err := onlyDocument(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if top == nil {
		return nil
	}
	var errs []error
	fail := func(at *yaml.Node, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s:%d:%d: %w", path, at.Line, at.Column, fmt.Errorf(format, args...)))
	}
	byName := map[string]setting{}
	for _, one := range allSettings() {
		byName[one.name] = one
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		one, known := byName[key.Value]
		switch {
		case !known || key.Kind != yaml.ScalarNode:
			fail(key, "unknown key %q", key.Value)
			continue
		case s.given(one.name):
			fail(key, "%s is written twice", one.name)
			continue
		}
		s.origin[one.name] = fromFile
		if err := decode(value, one.in(&s.config)); err != nil {
			fail(value, "%s: %w", one.name, err)
		}
	}
	return errors.Join(errs...)
}

// onlyDocument returns the mapping that text consists of, nil if it is empty.
func onlyDocument(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil //nolint:nilnil // nothing is an answer
	case err != nil:
		return nil, err
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, fmt.Errorf("line %d: a second document: settings are one", second.Line)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	top := doc.Content[0]
	switch {
	case top.Kind == yaml.ScalarNode && top.ShortTag() == "!!null":
		return nil, nil //nolint:nilnil // nothing is an answer
	case top.Kind != yaml.MappingNode:
		return nil, fmt.Errorf("line %d: settings are a mapping of names to values", top.Line)
	}
	return top, nil
}

// decode reads one value of the file into what p points to.
func decode(n *yaml.Node, p any) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch p := p.(type) {
	case *[]string:
		if n.Kind != yaml.SequenceNode {
			return errors.New("want a list of strings")
		}
		list := make([]string, len(n.Content))
		for i, item := range n.Content {
			if err := decode(item, &list[i]); err != nil {
				return fmt.Errorf("item %d: %w", i+1, err)
			}
		}
		*p = list
		return nil
	case *string:
		return scalar(n, "a string", "!!str", p)
	case *int:
		return scalar(n, "a whole number", "!!int", p)
	case *bool:
		return scalar(n, "true or false", "!!bool", p)
	case *time.Duration:
		return scalar(n, "a duration such as 300ms, 5s or 10m", "!!str", p)
	}
	return nil
}

func scalar(n *yaml.Node, want, tag string, p any) error {
	// A bare 0 is a duration as it stands: there is no unit to forget.
	_, isDuration := p.(*time.Duration)
	if n.Kind != yaml.ScalarNode || (n.ShortTag() != tag && (!isDuration || n.Value != "0")) {
		return fmt.Errorf("want %s", want)
	}
	return parse(n.Value, p)
}
