package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// serviceUser is the user as whom the units of systemd run the programs.
const serviceUser = "trafficd"

// BecomeServiceUser makes the process continue as the user as whom the units run the programs, if
// it runs as root and there is this user, because a check as root would accept files that the
// programs cannot read. It writes this to w, and whether that user cannot read the file with the
// settings, which has been read; file may be empty.
func BecomeServiceUser(w io.Writer, file string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup(serviceUser)
	if err != nil {
		return nil //nolint:nilerr // there is no such user, for example in a container
	}
	var groups []int
	names, err := u.GroupIds()
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			groups = append(groups, id)
		}
	}
	if err = errors.Join(err, uidErr, gidErr); err == nil {
		err = errors.Join(syscall.Setgroups(groups), syscall.Setgid(gid), syscall.Setuid(uid))
	}
	if err != nil {
		return fmt.Errorf("cannot check as the user %s: %w", serviceUser, err)
	}
	fmt.Fprintln(w, "checking as the user", serviceUser)
	if file != "" && unix.Access(file, unix.R_OK) != nil {
		fmt.Fprintf(w, "warning: the user %s cannot read %s\n", serviceUser, file)
	}
	return nil
}
