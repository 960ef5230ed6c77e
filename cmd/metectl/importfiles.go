package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An importFile is one file of descriptors.
type importFile struct {
	name string // for messages: file:line:col
	rel  string // below the folder that was named, whatever that is called elsewhere
	key  string // what envoyproxy/ratelimit calls it, without .yaml: dots for slashes
	text []byte
}

// An importReader reads all files of an import as they are at one moment.
type importReader struct {
	stdin   io.Reader
	files   []importFile
	skipped []string // a remark for each entry that is not read though it might be meant
	what    string   // that failed, for errors: "cannot import"
	seen    []fs.FileInfo
	again   bool // something was met a second time
}

// steadyTries is how often files are read until two readings agree.
const steadyTries = 5

// readSteady reads the files until two readings are the same, so that what is half way
// through a change of links is not taken.
func readSteady(stdin io.Reader, paths []string) (*importReader, error) {
	read := func() (*importReader, error) { return readImport(stdin, paths) }
	if !slices.ContainsFunc(paths, isFolder) {
		return read() // a pipe can be read but once
	}
	return steady(read)
}

func steady(read func() (*importReader, error)) (*importReader, error) {
	last, err := read()
	for range steadyTries {
		before := last
		if last, err = read(); err == nil && before != nil && last.sum() == before.sum() {
			return last, nil
		}
	}
	if err == nil {
		err = &failure{
			code: exitConflict, what: "cannot import", why: "the files change while they are read",
			next: "import again when nobody writes to them",
		}
	}
	return nil, err
}

// readImport reads folders and files, each file once however many links lead to it.
func readImport(stdin io.Reader, paths []string) (*importReader, error) {
	r := &importReader{stdin: stdin, what: "cannot import"}
	for _, path := range paths {
		if err := r.path(path); err != nil {
			return nil, err
		}
	}
	if len(r.files) == 0 {
		return nil, &failure{
			code: exitNotFound, what: "cannot import", why: strings.Join(paths, ", ") + " holds no .yaml file",
			next: "name the folder with the descriptor files, such as RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/config",
		}
	}
	return r, nil
}

// sum tells one state of the files from another.
func (r *importReader) sum() [sha256.Size]byte {
	h := sha256.New()
	for _, f := range r.files {
		_, _ = fmt.Fprintf(h, "%q %d\n%s", f.name, len(f.text), f.text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (r *importReader) path(path string) error {
	if path == "-" {
		text, err := io.ReadAll(r.stdin)
		if err != nil {
			return fileError("cannot read standard input", err)
		}
		r.files = append(r.files, importFile{name: "<stdin>", rel: "stdin", key: "stdin", text: text})
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fileError(r.what, err)
	case info.IsDir():
		return r.top(path)
	}
	return r.file(path, filepath.Base(path), info, false)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// top reads a folder that was named. Where it holds the folder "config" it is laid out
// as RUNTIME_ROOT/RUNTIME_SUBDIRECTORY, of which envoyproxy/ratelimit reads only what
// lies there, or beside it in files whose names begin with "config.".
func (r *importReader) top(folder string) error {
	const app = "config"
	if !isFolder(filepath.Join(folder, app)) {
		return r.folder(folder, "")
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fileError(r.what, err)
	}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.Name() == app:
			err = r.folder(path, "")
		case isFolder(path):
			r.skip(path, "is beside the folder config, where envoyproxy/ratelimit does not look either")
		case !isDocumentName(e.Name()):
		case strings.HasPrefix(e.Name(), app+"."):
			err = r.entry(path, strings.TrimPrefix(e.Name(), app+"."))
		default:
			return usageError(
				fmt.Sprintf("%s holds the folder config and %s beside it, which envoyproxy/ratelimit does not read", folder, e.Name()),
				"name what is meant: "+filepath.Join(folder, app)+", or the files",
			)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// folder reads a folder and those below it, also where links lead to them. What begins
// with a dot is skipped: in a folder that Kubernetes mounts, "..data" and "..2026_01"
// lead to the same files once more (C002).
func (r *importReader) folder(folder, rel string) error {
	info, err := os.Stat(folder)
	if err != nil {
		return fileError(r.what, err)
	}
	if r.was(info) {
		return nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fileError(r.what, err)
	}
	for _, e := range entries {
		name, path := e.Name(), filepath.Join(folder, e.Name())
		if name[0] != '.' {
			if err := r.entry(path, rel+name); err != nil {
				return err
			}
		} else if isDocumentName(name[1:]) && strings.Contains(name[1:], ".") {
			r.skip(path, "begins with a dot")
		}
	}
	return nil
}

func (r *importReader) entry(path, rel string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fileError(r.what, err)
	case info.IsDir():
		return r.folder(path, rel+"/")
	case !isDocumentName(filepath.Base(path)):
		r.skip(path, "does not end in .yaml")
		return nil
	case !info.Mode().IsRegular():
		r.skip(path, "is not a regular file")
		return nil
	}
	return r.file(path, rel, info, true)
}

// isDocumentName reports whether a file in a folder is read for its name. One without an
// extension is if it has descriptors, as a key of a config map may have none.
func isDocumentName(name string) bool {
	return slices.Contains([]string{"", ".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// hasDescriptors reports whether some line of text begins as a file of descriptors does.
// Of what lies in folders beside documents, a LICENSE or a Makefile has none.
func hasDescriptors(text []byte) bool {
	for line := range bytes.Lines(text) {
		key, _, _ := bytes.Cut(bytes.TrimLeft(line, " \t{"), []byte(":"))
		switch string(bytes.Trim(key, "\"' \t")) {
		case "domain", "descriptors":
			return true
		}
	}
	return false
}

// file reads a file that was named, or that is in a folder.
func (r *importReader) file(path, rel string, info fs.FileInfo, inFolder bool) error {
	if r.was(info) {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fileError(r.what, err)
	}
	if filepath.Ext(path) == "" && inFolder && !hasDescriptors(text) {
		r.skip(path, "has no extension, and no domain or descriptors in it")
		return nil
	}
	r.files = append(r.files, importFile{
		name: path, rel: filepath.ToSlash(rel), text: text,
		key: strings.ReplaceAll(strings.TrimSuffix(filepath.ToSlash(rel), ".yaml"), "/", "."),
	})
	return nil
}

// was reports whether a file or folder has been read, and notes that it is now.
func (r *importReader) was(info fs.FileInfo) bool {
	if slices.ContainsFunc(r.seen, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
		r.again = true
		return true
	}
	r.seen = append(r.seen, info)
	return false
}

func (r *importReader) skip(path, why string) {
	r.skipped = append(r.skipped, path+" is not read: it "+why)
}
