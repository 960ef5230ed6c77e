package e2e_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"
)

// outcomesWithin is how long a matrix may take, on a machine that does much else.
const outcomesWithin = 4 * time.Minute

// A matrix is every outcome in every column, in front of so many replicas. It is
// played once, for all tests that look at it.
type matrix struct {
	replicas int
	apps     map[string]string // which outcomes count, by app, beside the app api

	once    sync.Once
	cells   map[string]*cell // by id
	figures map[string]float64
	edge    map[string]usage // of the tenants that Envoy's rate limit filter asks for
	err     error
}

// The matrices.
var (
	alone = matrix{replicas: 1, apps: map[string]string{"completed": "{preset: completed}", "aborted": "{aborted: true}"}}
	pair  = matrix{replicas: 2}
)

// played returns m once it has been played.
func (m *matrix) played(t *testing.T) *matrix {
	t.Helper()
	if testing.Short() {
		t.Skip("plays several hundred requests through Envoy")
	}
	m.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), outcomesWithin)
		defer cancel()
		m.err = m.play(ctx)
	})
	if m.err != nil {
		t.Fatal(m.err)
	}
	return m
}

func (m *matrix) play(ctx context.Context) (err error) {
	s, err := newStage(ctx, m.replicas)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()

	docs, all := edgeDocuments(), m.list()
	for app, count := range m.apps {
		maps.Copy(docs, outcomesDocuments(app, count))
	}
	maps.Copy(docs, outcomesDocuments("api", ""))
	for _, c := range all {
		tenantOf(docs, c.app, c.tenant(), c.key(), c.plan())
	}
	if err := s.publish(ctx, "api", docs); err != nil {
		return err
	}
	if err := s.play(ctx, all); err != nil {
		return err
	}
	m.figures, m.edge = s.figures, map[string]usage{}
	for _, tenant := range []string{"edge:full", "edge:open", "edge:open-failed"} {
		if m.edge[tenant], err = s.account(ctx, tenant); err != nil {
			return err
		}
	}
	return s.readUsage(ctx, all, func(c *cell) bool {
		return c.app == "api" && (m.replicas == 1 || c.column.use != "") // once for all is enough of metectl
	})
}

// list makes the cells.
func (m *matrix) list() []*cell {
	var all []*cell
	m.cells = map[string]*cell{}
	for _, section := range sections() {
		for i := range section.rows {
			row := &section.rows[i]
			for j := range columns {
				all = append(all, &cell{outcome: row, column: &columns[j], app: "api"})
			}
			for app := range m.apps {
				all = append(all, &cell{outcome: row, column: &columns[0], app: app}, &cell{outcome: row, column: &columns[2], app: app})
			}
		}
	}
	for _, c := range all {
		m.cells[c.id()] = c
	}
	return all
}

// cell returns a cell by the names of its outcome and its column.
func (m *matrix) cell(t *testing.T, app, outcome, column string) *cell {
	t.Helper()
	c := m.cells[app+"/"+outcome+"-"+column]
	if c == nil {
		t.Fatalf("the matrix has no %s in %s of %s", outcome, column, app)
	}
	return c
}
