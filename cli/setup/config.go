package setup

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) configCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Manage contexts: which controller to talk to, and how",
		Long: `Contexts live in ~/.config/ingot/config.yaml, or in the file that INGOT_CONFIG or --config
names. Flags win over the environment (INGOT_SERVER, INGOT_CA_FILE, INGOT_CA_HASH, INGOT_TOKEN,
INGOT_TOKEN_FILE), which wins over the context.`,
		Example: "  ingot config set-context lab --server 10.0.0.5:50051 --ca-file ca.pem --token-file token\n  ingot " +
			"config use-context lab",
	}
	cmd.AddCommand(a.setContextCmd(), a.useContextCmd(), a.getContextsCmd(), a.currentContextCmd(), a.viewConfigCmd())
	return cmd
}

// editConfig loads the file, lets edit change it, and stores it.
func (a commands) editConfig(edit func(*client.File) error) error {
	file, err := client.Load(a.app.ConfigPath())
	if err != nil {
		return err
	}
	if err := edit(file); err != nil {
		return err
	}
	return file.Save(a.app.ConfigPath())
}

func (a commands) setContextCmd() *cobra.Command {
	var fromInput bool
	cmd := &cobra.Command{
		Use:   "set-context NAME",
		Short: "Make or change a context",
		Long: `Make a context, or change what is given of one that exists. The first context becomes the
current one. A token file is better than a token: the configuration then holds no secret.`,
		Example:           "  ingot config set-context lab --server 10.0.0.5:50051 --ca-file ca.pem --token-file token",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteContexts),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.editConfig(func(f *client.File) error {
				token := ""
				if fromInput {
					var err error
					if token, err = a.app.Password("the token of "+args[0], ""); err != nil {
						return err
					}
				}
				c, err := a.changedContext(f.Contexts[args[0]], token)
				if err != nil {
					return err
				}
				f.Contexts[args[0]] = c
				if f.CurrentContext == "" {
					f.CurrentContext = args[0]
				}
				return nil
			})
			if err != nil {
				return err
			}
			return a.app.Write("Context " + args[0] + " stored in " + a.app.ConfigPath() + "\n")
		},
	}
	cmd.Flags().BoolVar(&fromInput, "token-stdin", false,
		"ask for the bearer token itself, or read it from standard input")
	return cmd
}

// changedContext lays the connection flags over a context. A CA or token of one kind replaces the other kind.
func (a commands) changedContext(c client.Context, token string) (client.Context, error) {
	fl := a.app.Flags.Flags
	if (fl.CAFile != "" && fl.CAHash != "") || (fl.TokenFile != "" && token != "") {
		return c, command.Usagef("give a CA as a file or as a hash, and a token as a file or as itself, not both")
	}
	if fl.Server != "" {
		c.Server = fl.Server
	}
	if fl.CAFile != "" || fl.CAHash != "" {
		c.CAFile, c.CAHash = absolute(fl.CAFile), fl.CAHash
	}
	if fl.TokenFile != "" || token != "" {
		c.TokenFile, c.Token = absolute(fl.TokenFile), token
	}
	if c.Server == "" {
		return c, command.Usagef("a context needs --server")
	}
	return c, nil
}

// absolute keeps a path good when the command is run from another folder.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path // there is no working folder to be relative to
	}
	return abs
}

func (a commands) useContextCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "use-context NAME",
		Short:             "Make a context the current one",
		Long:              `Make a context the one that commands use when --context is not given.`,
		Example:           "  ingot config use-context lab",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteContexts),
		RunE: func(_ *cobra.Command, args []string) error {
			err := a.editConfig(func(f *client.File) error {
				if _, ok := f.Contexts[args[0]]; !ok {
					return &command.ExitError{
						Code: command.ExitNotFound,
						Err:  fmt.Errorf("no context %q; there are: %v", args[0], f.Names()),
					}
				}
				f.CurrentContext = args[0]
				return nil
			})
			if err != nil {
				return err
			}
			return a.app.Write("Using context " + args[0] + "\n")
		},
	}
}

func (a commands) getContextsCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "get-contexts",
		Short:   "List contexts",
		Long:    `List contexts; ✓ marks the current one.`,
		Example: "  ingot config get-contexts",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file, err := client.Load(a.app.ConfigPath())
			if err != nil {
				return err
			}
			if a.app.Document() && a.app.Flags.Output != "name" {
				return a.printFile(file)
			}
			t := &view.Table{Header: []string{"CURRENT", "NAME", "SERVER"}}
			names := ""
			for _, n := range file.Names() {
				t.Add(view.Mark(n == file.CurrentContext), n, file.Contexts[n].Server)
				names += n + "\n"
			}
			if a.app.Flags.Output == "name" {
				return a.app.Write(names)
			}
			return a.app.Write(t.String())
		},
	}
}

func (a commands) currentContextCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "current-context",
		Short:   "Print the name of the current context",
		Long:    `Print the name of the current context. Exit code 3 when there is none.`,
		Example: "  ingot config current-context",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file, err := client.Load(a.app.ConfigPath())
			if err != nil {
				return err
			}
			if file.CurrentContext == "" {
				return &command.ExitError{Code: command.ExitNotFound, Err: client.ErrNoServer}
			}
			return a.app.Write(file.CurrentContext + "\n")
		},
	}
}

func (a commands) viewConfigCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "view",
		Short:   "Print the configuration without its secrets",
		Long:    `Print the configuration as YAML, or as JSON with -o json. Tokens are left out.`,
		Example: "  ingot config view",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file, err := client.Load(a.app.ConfigPath())
			if err != nil {
				return err
			}
			return a.printFile(file)
		},
	}
}

func (a commands) printFile(file *client.File) error {
	raw, err := yaml.Marshal(file.Redacted())
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	if a.app.Flags.Output != "yaml" && a.app.ForPrograms() {
		var tree any
		if err := yaml.Unmarshal(raw, &tree); err != nil {
			return fmt.Errorf("read back YAML: %w", err)
		}
		if raw, err = json.MarshalIndent(tree, "", "  "); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		return command.WriteJSON(a.app, raw)
	}
	return a.app.Write(string(raw))
}
