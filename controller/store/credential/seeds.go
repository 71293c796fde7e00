package credential

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// keepSeeds is how long a seed stays after it was last given, if no work under way names it.
const keepSeeds = 30 * 24 * time.Hour

// PutSystemSeed stores a sealed seed under the digest of its content. The same again is its use.
func (s *Store) PutSystemSeed(ctx context.Context, id string, sealed []byte, now time.Time) error {
	err := s.db.Q.PutSystemSeed(ctx, dbsqlc.PutSystemSeedParams{SeedID: id, Sealed: sealed, Now: now})
	if err != nil {
		return fmt.Errorf("store the new system's seed: %w", err)
	}
	return nil
}
