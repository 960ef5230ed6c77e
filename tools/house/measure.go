package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A room is what was measured of one package.
type room struct {
	path  string
	files []string
	lines int

	exported int      // names of the package, without methods and fields
	unused   []string // of them, those that no other package of the module uses
	knot     []string // the most files that reach each other in a circle; none: no two do

	file, function, fields largest
}

// A largest is the largest of something.
type largest struct {
	name  string
	lines int // or fields
}

func (l *largest) see(name string, lines int) {
	if lines > l.lines {
		l.name, l.lines = name, lines
	}
}

// A listedPackage is what go list says of a package, or of a module.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Module                  *struct{ Main bool }
	Path                    string // of a module
}

// measure returns the rooms of the packages that patterns name, all by default.
func measure(patterns []string) ([]*room, error) {
	modules, err := list([]string{"list", "-m", "-json=Path"})
	if err != nil {
		return nil, err
	}
	whole := modules[0].Path + "/..."
	if len(patterns) == 0 {
		patterns = []string{whole}
	}
	packages, err := list([]string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,Module", whole})
	if err != nil {
		return nil, err
	}
	wanted, err := list(append([]string{"list", "-json=ImportPath"}, patterns...))
	if err != nil {
		return nil, err
	}
	h := &house{set: token.NewFileSet(), exports: map[string]string{}, used: map[string]bool{}}
	for _, p := range packages {
		h.exports[p.ImportPath] = p.Export
	}
	h.imports = importer.ForCompiler(h.set, "gc", h.export)
	var rooms []*room
	for _, p := range packages {
		if p.Module == nil || !p.Module.Main || len(p.GoFiles) == 0 {
			continue
		}
		r, err := h.enter(p)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", p.ImportPath, err)
		}
		if len(r.files) > 0 && slices.ContainsFunc(wanted, func(w *listedPackage) bool { return w.ImportPath == p.ImportPath }) {
			rooms = append(rooms, r)
		}
	}
	for _, r := range rooms { // once all uses are known
		r.unused = slices.DeleteFunc(r.unused, func(name string) bool { return h.used[r.path+"."+name] })
	}
	slices.SortFunc(rooms, func(a, b *room) int { return strings.Compare(a.path, b.path) })
	return rooms, nil
}

// list runs the go command and reads what it lists.
func list(args []string) (all []*listedPackage, err error) {
	var out, complaint bytes.Buffer
	cmd := exec.Command("go", args...) //nolint:noctx // nothing ends it but its own end
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, complaint.String())
	}
	for d := json.NewDecoder(&out); ; {
		p := new(listedPackage)
		switch err := d.Decode(p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read what go %s lists: %w", args[0], err)
		}
		all = append(all, p)
	}
}

// A house is the module.
type house struct {
	set     *token.FileSet
	exports map[string]string // files of export data, by package
	imports types.Importer
	used    map[string]bool // exported names with their package, by another one
}

func (h *house) export(path string) (io.ReadCloser, error) { return os.Open(h.exports[path]) }

// enter measures one package and notes what it uses of others.
func (h *house) enter(p *listedPackage) (*room, error) {
	r := &room{path: p.ImportPath}
	var all []*ast.File
	own := map[string]bool{} // files that are not generated
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(h.set, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
		if !ast.IsGenerated(f) {
			own[name] = true
			r.files = append(r.files, name)
			h.look(r, name, f)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: h.imports}
	typed, err := config.Check(p.ImportPath, h.set, all, info)
	if err != nil {
		return nil, err
	}
	for _, name := range typed.Scope().Names() {
		o := typed.Scope().Lookup(name)
		if o.Exported() && own[h.fileOf(o.Pos())] {
			r.exported++
			r.unused = append(r.unused, name)
		}
	}
	r.knot = knot(h.arrows(typed, info, own))
	return r, nil
}

func (h *house) fileOf(at token.Pos) string { return filepath.Base(h.set.Position(at).Filename) }

// look measures a file.
func (h *house) look(r *room, name string, f *ast.File) {
	lines := h.set.File(f.Pos()).LineCount()
	r.lines += lines
	r.file.see(name, lines)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			r.function.see(n.Name.Name, h.set.Position(n.End()).Line-h.set.Position(n.Pos()).Line+1)
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok {
				r.fields.see(n.Name.Name, s.Fields.NumFields())
			}
		}
		return true
	})
}

// arrows returns which file of a package refers to which others, and notes what other
// packages are used for.
func (h *house) arrows(of *types.Package, info *types.Info, own map[string]bool) map[string]map[string]bool {
	arrows := map[string]map[string]bool{}
	for at, o := range info.Uses {
		if o.Pkg() == nil {
			continue
		}
		if o.Pkg() != of {
			h.used[o.Pkg().Path()+"."+o.Name()] = true
			continue
		}
		from, to := h.fileOf(at.Pos()), h.fileOf(o.Pos())
		if v, ok := o.(*types.Var); ok && !v.IsField() && o.Parent() != of.Scope() {
			continue // of a function
		}
		if from != to && own[from] && own[to] {
			if arrows[from] == nil {
				arrows[from] = map[string]bool{}
			}
			arrows[from][to] = true
		}
	}
	return arrows
}

// listed joins names, not too many of them.
func listed(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
