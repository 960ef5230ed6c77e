package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

const (
	// completionWait is how long a shell waits for names.
	completionWait = 2 * time.Second
	// mostCompleted is how many names a shell is given; who types more of one gets those.
	mostCompleted = 200
)

// A completer offers words for what is being typed.
type completer = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// completeReference offers kinds, and after one the names of its documents: plan free,
// or plan/free.
func (c *cli) completeReference(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 1:
		kind, err := parseKind(args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.names(cmd, kind, typed), cobra.ShellCompDirectiveNoFileComp
	case len(args) > 1:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if word, start, ok := strings.Cut(typed, "/"); ok {
		kind, err := parseKind(word)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var all []string
		for _, name := range c.names(cmd, kind, start) {
			all = append(all, word+"/"+name)
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
	var all []string
	for _, words := range kindWords() {
		for _, w := range words {
			if strings.HasPrefix(w, typed) {
				all = append(all, w)
			}
		}
	}
	slices.Sort(all)
	return all, cobra.ShellCompDirectiveNoFileComp
}

// completeNames offers the names of a kind for the first word, or for a flag.
func (c *cli) completeNames(kind plan.Kind) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.names(cmd, kind, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag offers the names of a kind for a flag, whatever stands before it.
func (c *cli) completeFlag(cmd *cobra.Command, flag string, kind plan.Kind) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return c.names(cmd, kind, typed), cobra.ShellCompDirectiveNoFileComp
	}) // fails for a flag that the command has not, which tests would show
}

// names returns the names of a kind that begin with what is typed, as they are written.
// Whatever goes wrong, there is nothing to offer: a shell shows no errors.
func (c *cli) names(cmd *cobra.Command, kind plan.Kind, typed string) []string {
	if c.settle(cmd) != nil {
		return nil
	}
	c.timeout = min(c.timeout, completionWait)
	prefix := store.DocumentPrefix(kind)
	var names []string
	_ = c.withStore(cmd.Context(), "complete", func(ctx context.Context, client *clientv3.Client) error {
		r, err := client.Get(ctx, store.DocumentKey(kind, typed), clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)),
			clientv3.WithKeysOnly(), clientv3.WithLimit(mostCompleted))
		if err != nil {
			return err
		}
		for _, kv := range r.Kvs {
			if k, name, ok := store.ParseDocumentKey(string(kv.Key)); ok && k == kind && strings.HasPrefix(name, typed) {
				names = append(names, printable(shortName(kind, name)))
			}
		}
		return nil
	})
	return names
}
