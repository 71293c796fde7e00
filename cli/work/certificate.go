package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/internal/erasure"
	"github.com/ingot-metal/ingot/internal/erasure/pdf"
	"github.com/ingot-metal/ingot/internal/evidence"
)

func (a commands) certificateCmd() *cobra.Command {
	var operation, out string
	cmd := &cobra.Command{
		Use:   "certificate MACHINE",
		Short: "Get a signed certificate of what was erased on a machine",
		Long: `Get an erasure certificate: which disks of the machine were erased, how, what was read back, and by
whom, signed by the controller. It is of the machine's last erasure, or of the operation that is named.
There is none where an installer of Ingot has not read back every disk.

With --output pdf, or a file whose name ends in .pdf, it is pages to read, with the signed certificate attached.
Whoever has the root certificate verifies either without the controller: ingot certificate verify.`,
		Example: `  ingot certificate m-1 --out m-1.erased.json
  ingot certificate m-1 --out m-1.erased.pdf
  ingot certificate m-1 --operation op-01k
  ingot certificate verify m-1.erased.json --ca-file root.pem`,
		Args:              cobra.ExactArgs(1),
		Annotations:       map[string]string{command.Outputs: outputPDF},
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.app.Subject.Machine = args[0]
			return a.certificate(cmd.Context(), args[0], operation, out)
		},
	}
	cmd.Flags().StringVar(&operation, "operation", "", "the operation that has erased, instead of the last one")
	cmd.Flags().StringVar(&out, "out", "", "file to write it to, which must not exist yet (default: standard output)")
	a.app.Must(cmd.RegisterFlagCompletionFunc("operation", a.app.CompleteOperations()))
	cmd.AddCommand(a.certificateVerifyCmd())
	return cmd
}

// outputPDF is a form of --output that certificates alone have.
const outputPDF = "pdf"

func (a commands) certificate(ctx context.Context, machine, operation, out string) error {
	asPDF := a.app.Flags.Output == outputPDF || filepath.Ext(out) == ".pdf"
	if asPDF && out == "" && a.app.Config.OutTerminal {
		return command.Usagef("a PDF is nothing for a terminal: --out FILE.pdf")
	}
	svc := a.app.Services()
	if operation == "" {
		var err error
		if operation, err = lastErasure(ctx, svc, machine); err != nil {
			return err
		}
	}
	got, err := svc.Operations.GetErasureCertificate(ctx, &pb.GetErasureCertificateRequest{OperationId: operation})
	if err != nil {
		return err
	}
	content := got.GetDocument() + "\n"
	if asPDF {
		if content, err = a.pages(got.GetDocument()); err != nil {
			return err
		}
	}
	if out == "" {
		return a.app.WriteFile([]byte(content))
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write certificate: %w", errors.Join(err, os.Remove(out)))
	}
	a.app.Note("%s is the certificate of operation %s; see it with: ingot certificate verify %s", out, operation, out)
	return nil
}

// pages are made of a proven statement alone.
func (a commands) pages(document string) (string, error) {
	trust, err := a.app.Root()
	if err != nil {
		return "", err
	}
	s, err := erasure.Verify([]byte(document), trust)
	if err != nil {
		return "", &command.ExitError{Code: command.ExitFailed, Err: err}
	}
	file, err := pdf.Render([]byte(document), s)
	return string(file), err
}

// lastErasure is the machine's newest operation that has ended well and erased.
func lastErasure(ctx context.Context, svc *command.Services, machine string) (string, error) {
	found := ""
	_, err := command.Pages(0, func(size int32, token string) ([]*pb.Operation, string, error) {
		r, err := svc.Operations.ListOperations(ctx, &pb.ListOperationsRequest{
			Filter: "machine_id=" + machine + ",phase=SUCCEEDED", PageSize: size, PageToken: token})
		for _, op := range r.GetOperations() {
			if op.GetEvidence()[evidence.EraseMethod] != "" {
				found = op.GetOperationId()
				return nil, "", err
			}
		}
		return nil, r.GetNextPageToken(), err
	})
	if err == nil && found == "" {
		err = &command.ExitError{Code: command.ExitRefused, Err: fmt.Errorf(
			"no operation of machine %s has ended well and erased disks (ERASURE_NOT_PROVEN)", machine)}
	}
	return found, err
}

func (a commands) certificateVerifyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE",
		Short: "Prove an erasure certificate, without the controller",
		Long: `Verify the signature of an erasure certificate and that a controller of your installation has made
it, and show what it says. It needs the root certificate, or its hash, by --ca-file, --ca-hash or a
context, and no connection. FILE is JSON, or a PDF with it attached, or - for standard input.

Of a PDF the attachment is verified. A note says where the pages were not made of it by this version.

Exit code 5 says that it is not genuine.`,
		Example: `  ingot certificate verify m-1.erased.json --ca-file root.pem
  ingot certificate verify m-1.erased.json -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.verifyCertificate(args[0]) },
	}
}

func (a commands) verifyCertificate(path string) error {
	file, err := a.app.ReadInput(path)
	if err != nil {
		return err
	}
	document := file
	if pdf.Is(file) {
		if document, err = pdf.Document(file); err != nil {
			return &command.ExitError{Code: command.ExitFailed, Err: fmt.Errorf("%s: %w", path, err)}
		}
	}
	trust, err := a.app.Root()
	if err != nil {
		return err
	}
	s, err := erasure.Verify(document, trust)
	if err != nil {
		return &command.ExitError{Code: command.ExitFailed, Err: fmt.Errorf("%s: %w", path, err)}
	}
	if pdf.Is(file) {
		if again, err := pdf.Render(document, s); err != nil || !bytes.Equal(again, file) {
			a.app.Note(
				"The pages of %s are not those that this version makes of its certificate: what is proven is shown here.",
				path,
			)
		}
	}
	shown, err := asMessage(s)
	if err != nil {
		return err
	}
	return a.app.Print(shown, func() string { return a.app.Style().Erasure(s) }, s.Work.ID)
}

func asMessage(s erasure.Statement) (*structpb.Struct, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("show certificate: %w", err)
	}
	m := &structpb.Struct{}
	if err := m.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("show certificate: %w", err)
	}
	return m, nil
}
