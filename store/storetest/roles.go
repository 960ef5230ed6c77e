package storetest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Password is that of all users which Roles makes.
const Password = "secret"

// passwordHash is the bcrypt hash of Password with the least cost: under the race detector a
// login would take seconds with etcd's.
const passwordHash = "$2a$04$w5vjUAs0D6OiX2JXTvqFFuiPO7q3IaQDWkLOJ4V1tUpID4wBVRLxe"

// Roles follows the commands of etcdctl about roles on a page of the documents, makes a user
// of the name of each role, and root, and turns on authentication. The client must have come
// over the wire: one in the process has no user afterwards.
func Roles(ctx context.Context, c *clientv3.Client, page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	roles := []string{"root"}
	if _, err := c.RoleAdd(ctx, "root"); err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		words, isRole := strings.CutPrefix(strings.TrimSpace(line), "etcdctl role ")
		if !isRole {
			continue
		}
		args := strings.Fields(words)
		if args[0] == "add" {
			roles = append(roles, args[1])
		}
		if err := role(ctx, c, args); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
	}
	for _, name := range roles {
		if _, err := c.UserAdd(ctx, name, Password); err != nil {
			return err
		}
		cheap := &etcdserverpb.AuthUserChangePasswordRequest{Name: name, HashedPassword: base64.StdEncoding.EncodeToString([]byte(passwordHash))}
		if _, err := etcdserverpb.NewAuthClient(c.ActiveConnection()).UserChangePassword(ctx, cheap); err != nil {
			return err
		}
		if _, err := c.UserGrantRole(ctx, name, name); err != nil {
			return err
		}
	}
	_, err = c.AuthEnable(ctx)
	return err
}

// role does what etcdctl role does, given what follows that.
func role(ctx context.Context, c *clientv3.Client, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "add":
		_, err := c.RoleAdd(ctx, args[1])
		return err
	case len(args) < 4 || args[0] != "grant-permission":
		return errors.New("not understood by this test")
	}
	kind, ok := map[string]clientv3.PermissionType{
		"read": clientv3.PermissionType(clientv3.PermRead), "readwrite": clientv3.PermissionType(clientv3.PermReadWrite),
	}[args[2]]
	if !ok {
		return fmt.Errorf("%q is no permission", args[2])
	}
	key, end := args[3], ""
	switch {
	case len(args) == 5 && key == "--prefix=true":
		key, end = args[4], clientv3.GetPrefixRangeEnd(args[4])
	case len(args) == 5:
		end = args[4]
	}
	_, err := c.RoleGrantPermission(ctx, args[1], key, end, kind)
	return err
}
