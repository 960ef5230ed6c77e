package plan

import (
	"cmp"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

const (
	// longestWhen is how many bytes a condition may have.
	longestWhen = 1000
	// mostWhens is how many different conditions a document may have: each takes some 15 kB
	// of memory, and a quarter of a millisecond whenever the document is read.
	mostWhens = 1000
	// dearestLoop is what a condition that goes through the entries may cost, in CEL's measure:
	// some hundred entries, each compared with something. So may one that puts texts together more
	// than mostSums times, each of which may be as long as a header. Others are bounded by
	// their length.
	dearestLoop = 10_000
	mostSums    = 4
)

// A condition is what "when" of a rule says, an expression of CEL (P18). Any number of
// goroutines may use it.
type condition struct{ program cel.Program }

// conditions compiles those of a document, each one once however often it is written.
type conditions struct {
	env      *cel.Env
	known    map[string]compiledWhen
	tooLarge func(*syntax.Regexp) string // says what is wrong with the pattern of a matches(), or ""
}

type compiledWhen struct {
	*condition
	fault string // "": none
}

// condition reads "when" of a rule.
func (o *object) condition(rule *DescriptorRule) {
	n := o.optional("when")
	if n == nil {
		return
	}
	path := o.at("when")
	rule.When = o.word(n, "when") // tells the rule from others in what is said of it
	switch {
	case rule.When == "":
		return
	case len(rule.When) > longestWhen:
		o.fail(n, path, "has more than %d bytes; write a shorter one", longestWhen)
		return
	}
	if o.conditions == nil {
		o.conditions = &conditions{known: map[string]compiledWhen{}, tooLarge: o.tooLarge}
	}
	c, known := o.conditions.known[rule.When]
	switch {
	case !known && len(o.conditions.known) == mostWhens:
		o.fail(n, path, "is one condition too many; a document may have %d different ones, divide it", mostWhens)
		return
	case !known:
		c.condition, c.fault = o.conditions.compile(rule.When)
		o.conditions.known[rule.When] = c // one that is none was work, too
	}
	rule.when = c.condition
	if c.fault != "" {
		o.fail(n, path, "is not a condition in CEL: %s; write one such as descriptor[\"plan\"] != \"free\"", c.fault)
	}
}

// compile returns a condition, or what is wrong with its text.
func (c *conditions) compile(text string) (_ *condition, fault string) {
	if c.env == nil {
		env, err := cel.NewEnv(cel.Variable("descriptor", cel.MapType(cel.StringType, cel.StringType)))
		if err != nil {
			return nil, err.Error()
		}
		c.env = env
	}
	parsed, issues := c.env.Compile(text)
	if issues.Err() != nil {
		return nil, issueOf(text, issues)
	}
	if !parsed.OutputType().IsExactType(cel.BoolType) {
		return nil, fmt.Sprintf("it is of type %s and must be true or false", parsed.OutputType())
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	dear, fault := c.looksInto(parsed.NativeRep().Expr())
	if fault != "" {
		return nil, fault
	}
	if dear { // to watch the cost of the others would treble it
		options = append(options, cel.CostLimit(dearestLoop))
	}
	program, err := c.env.Program(parsed, options...)
	if err != nil {
		return nil, err.Error()
	}
	return &condition{program}, ""
}

// issueOf says what is wrong with a condition first, and where in it.
func issueOf(text string, issues *cel.Issues) string {
	first := issues.Errors()[0]
	message, _, _ := strings.Cut(first.Message, " expecting ") // all that CEL knows
	message = strings.ReplaceAll(strings.TrimPrefix(message, "Syntax error: "), " (in container '')", "")
	place := fmt.Sprintf("column %d", max(1, first.Location.Column()+1))
	if strings.Contains(text, "\n") {
		place = fmt.Sprintf("line %d, %s", max(1, first.Location.Line()), place)
	}
	const longest = 160
	if len(message) > longest {
		message = strings.ToValidUTF8(message[:longest], "") + "..."
	}
	return fmt.Sprintf("%s: %s", place, message)
}

// looksInto reports whether the cost of a condition must be watched, and what is wrong with it:
// a pattern that is not written down would have to be compiled for each request, as the
// caller pleases.
func (c *conditions) looksInto(e ast.Expr) (dear bool, fault string) {
	sums := 0
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			dear = true
		case ast.CallKind:
			if e.AsCall().FunctionName() == operators.Add {
				sums++
			}
			if e.AsCall().FunctionName() == "matches" && fault == "" {
				fault = c.pattern(e.AsCall().Args())
			}
		case ast.UnspecifiedExprKind, ast.IdentKind, ast.ListKind, ast.LiteralKind, ast.MapKind, ast.SelectKind, ast.StructKind:
		}
	}))
	return dear || sums > mostSums, fault
}

// pattern says what is wrong with the pattern among the arguments of matches(), or "".
func (c *conditions) pattern(args []ast.Expr) string {
	if len(args) == 0 {
		return ""
	}
	last := args[len(args)-1]
	if last.Kind() != ast.LiteralKind {
		return "matches() takes no pattern but one that is written down, as in matches(\"^v[0-9]+$\")"
	}
	text, _ := last.AsLiteral().Value().(string)
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return "" // CEL says it
	}
	if fault := c.tooLarge(tree); fault != "" {
		return "the pattern of matches() " + fault
	}
	return ""
}

// A seenDescriptor is a descriptor as conditions see it: the values by their keys.
type seenDescriptor struct{ values any }

// newSeenDescriptor is for entries that need not be UTF-8, which CEL's texts are. Of a key
// that is there twice the first value counts.
func newSeenDescriptor(entries []DescriptorEntry) *seenDescriptor {
	const replacement = "\uFFFD"
	values := make(map[string]string, len(entries))
	for i := range entries {
		key := strings.ToValidUTF8(entries[i].Key, replacement)
		if _, twice := values[key]; !twice {
			values[key] = strings.ToValidUTF8(entries[i].Value, replacement)
		}
	}
	return &seenDescriptor{types.NewStringStringMap(types.DefaultTypeAdapter, values)}
}

// ResolveName implements [cel.Activation].
func (d *seenDescriptor) ResolveName(name string) (any, bool) { return d.values, name == "descriptor" }

// Parent implements [cel.Activation].
func (d *seenDescriptor) Parent() cel.Activation { return nil }

// A descriptorAsk is a descriptor whose rule is looked for.
type descriptorAsk struct {
	entries []DescriptorEntry
	seen    *seenDescriptor // nil until a condition asks
	failed  int64           // conditions that nobody can tell
	// named, if not nil, says which conditions held, in place of asking them.
	named []CounterEntry
}

// meets reports whether the condition of a rule for the entry i holds. One that nobody can tell
// does, for a slip in it must not lift a limit.
func (a *descriptorAsk) meets(r *DescriptorRule, i int) bool {
	switch {
	case a.named != nil:
		return r.When == a.named[i].When
	case r.when == nil:
		return true
	case a.seen == nil:
		a.seen = newSeenDescriptor(a.entries)
	}
	value, _, err := r.when.program.Eval(a.seen)
	holds, told := value.(types.Bool)
	if err != nil || !told {
		a.failed++
		return true
	}
	return bool(holds)
}

// first returns the first rule of a place whose condition holds, or nil.
func (n *descriptorNode) first(a *descriptorAsk, i int) *descriptorNode {
	for n != nil && !a.meets(n.Rule, i) {
		n = n.next
	}
	return n
}

// FailedConditions returns how often a condition of the domain could not be told, since
// the domain has been there.
func (t *DescriptorTable) FailedConditions() int64 { return t.failed.Load() }

// FailedConditions returns by domain how often a condition could not be told, since the
// domain has been there. Domains where that never happened are left out.
func (s *Snapshot) FailedConditions() map[string]int64 {
	all := map[string]int64{}
	for name, d := range s.limited.entries {
		if d.Table != nil && d.Table.FailedConditions() > 0 {
			all[name] = d.Table.FailedConditions()
		}
	}
	return all
}

// place is a rule's spot without its condition: those who have it are tried one after another.
func (r *DescriptorRule) place() DescriptorSpot { return DescriptorSpot{r.Key, r.Value, r.Regex, ""} }

// inPlaces returns the rules of a level in the order in which they are tried, those of one
// place beside each other: where the first of them is written, and the one without a
// condition behind the others, which it would hide.
func inPlaces(rules []DescriptorRule) []*DescriptorRule {
	all := make([]*DescriptorRule, len(rules))
	conditional := false
	for i := range rules {
		all[i] = &rules[i]
		conditional = conditional || rules[i].When != ""
	}
	if !conditional {
		return all
	}
	at := make(map[DescriptorSpot]int, len(rules))
	for i, r := range all {
		if _, twice := at[r.place()]; !twice {
			at[r.place()] = i
		}
	}
	slices.SortStableFunc(all, func(a, b *DescriptorRule) int {
		switch where := cmp.Compare(at[a.place()], at[b.place()]); {
		case where != 0:
			return where
		case a.When != "" && b.When == "":
			return -1
		case a.When == "" && b.When != "":
			return 1
		}
		return 0
	})
	return all
}

// appendWhen appends the condition of a rule to the name of a counter. It follows the entry that
// the rule matches, with a key that none has.
func appendWhen(b []byte, when string) []byte {
	return appendEscaped(append(b, "&*when="...), when, false)
}
