package credential

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// keepEndedTokens is how long a list can still show a bearer token that has ended.
const keepEndedTokens = 90 * 24 * time.Hour

// Tidy removes what nothing needs any more: bearer tokens that ended long ago, certificates of BMCs that no machine
// has, and seeds that no installation uses. It removes some at a time, and is called again and again.
func (s *Store) Tidy(ctx context.Context, now time.Time) error {
	const most = 5000
	if _, err := s.db.Q.DropEndedAPITokens(ctx, dbsqlc.DropEndedAPITokensParams{Before: now.Add(-keepEndedTokens),
		MaxRows: most}); err != nil {
		return fmt.Errorf("drop ended tokens: %w", err)
	}
	if _, err := s.db.Q.DropBMCCertificates(ctx, most); err != nil {
		return fmt.Errorf("drop certificates of BMCs: %w", err)
	}
	if _, err := s.db.Q.DropBMCUnparked(ctx, most); err != nil {
		return fmt.Errorf("drop what BMCs are asked again since: %w", err)
	}
	if _, err := s.db.Q.DropSystemSeeds(ctx, dbsqlc.DropSystemSeedsParams{Before: now.Add(-keepSeeds),
		MaxRows: most}); err != nil {
		return fmt.Errorf("drop seeds of systems: %w", err)
	}
	return nil
}
