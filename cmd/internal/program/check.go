package program

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// checkMode is the value of the flag --check-config: "files", "deep", or empty without the flag.
type checkMode string

// checkModes is what pflag shows as the value of the flag, and sets if there is none.
const checkModes = "files|deep"

// addTo adds the flag to a command without arguments.
func (m *checkMode) addTo(cmd *cobra.Command) {
	cmd.Flags().Var(m, "check-config", "report every error in the settings and exit; deep: also connect to the stores")
	cmd.Flags().Lookup("check-config").NoOptDefVal = checkModes
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *m != "" && len(args) > 0 {
			return fmt.Errorf("unexpected argument %q: to check the stores too, use --check-config=deep", args[0])
		}
		return cobra.NoArgs(cmd, args)
	}
}

// Set implements pflag.Value.
func (m *checkMode) Set(value string) error {
	switch value {
	case checkModes:
		value = "files"
	case "files", "deep":
	default:
		return errors.New("must be files (the default) or deep")
	}
	*m = checkMode(value)
	return nil
}

// String implements pflag.Value.
func (m *checkMode) String() string { return string(*m) }

// Type implements pflag.Value.
func (m *checkMode) Type() string { return "" }
